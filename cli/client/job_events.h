#ifndef FRESHET_CLI_CLIENT_JOB_EVENTS_H_
#define FRESHET_CLI_CLIENT_JOB_EVENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client/job_client.h"
#include "runlog/metrics_log.h"

namespace freshet {

// All rows of metrics that a job has now, oldest first: reads its events up to the newest one.
absl::StatusOr<std::vector<std::string>> ReadMetricsRows(JobClient& client,
                                                         const std::string& job_id);

// The steps and evaluations among `rows` that survive resumes; rows that cannot be read are left
// out.
MetricsHistory SurvivingHistory(const std::vector<std::string>& rows);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_JOB_EVENTS_H_
