#ifndef FRESHET_CLI_CLIENT_JOB_EVENTS_H_
#define FRESHET_CLI_CLIENT_JOB_EVENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client/job_client.h"
#include "runlog/metrics_log.h"

namespace freshet {

// All current metrics rows of a job, oldest first.
absl::StatusOr<std::vector<std::string>> ReadMetricsRows(JobClient& client,
                                                         const std::string& job_id);

// The steps and evaluations in `rows` that survive resumes; unreadable rows are skipped.
MetricsHistory SurvivingHistory(const std::vector<std::string>& rows);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_JOB_EVENTS_H_
