#ifndef FRESHET_CLI_FORMAT_CLUSTER_TEXT_H_
#define FRESHET_CLI_FORMAT_CLUSTER_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/display_format.h"
#include "runlog/step_metrics.h"

namespace freshet {

// A job in `freshet top`, and its newest step if known.
struct TopJob {
  freshet::job::v1::Job job;
  std::optional<StepMetrics> last_step;
};

std::optional<StepMetrics> LastStep(const freshet::job::v1::Job& job);

// One screen: a paragraph per job, then a line per pool and per worker. Lines are cut to the width.
// Ends with a newline. Pure.
std::string FormatTop(const freshet::job::v1::Cluster& cluster, const std::vector<TopJob>& jobs,
                      absl::Time now, const DisplayStyle& style);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_CLUSTER_TEXT_H_
