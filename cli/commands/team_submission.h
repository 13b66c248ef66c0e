#ifndef FRESHET_CLI_COMMANDS_TEAM_SUBMISSION_H_
#define FRESHET_CLI_COMMANDS_TEAM_SUBMISSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/client/job_client.h"
#include "freshet/job/v1/job_service.pb.h"
#include "job/job_parser.h"

namespace freshet {

// INVALID_ARGUMENT: two policies of a file have the same pool. A pool serves one job at a time, so
// that each would wait for the other.
absl::Status CheckPools(const std::vector<JobResult>& jobs);

// The id that the jobs of a file with `policies` share: NAME-xxxxxxxx, short enough for theirs.
std::string MakeTeamId(const std::vector<JobResult>& jobs, uint64_t random_bits);

// INVALID_ARGUMENT: the id TEAM-POLICY of one of the jobs is too long or has other characters than
// an id may have. `team` is not empty.
absl::Status CheckTeamIds(const std::vector<JobResult>& jobs, const std::string& team);

// What SubmitTeam has done.
struct TeamSubmission {
  std::vector<std::string> ids;        // of all jobs, if `status` is OK
  absl::Status status;                 // the first error
  std::vector<std::string> cancelled;  // jobs that were cancelled because of it
  std::vector<std::string> left;       // jobs that may run, because they could not be cancelled
};
// Submits the jobs of a team, each with an id, after all were validated. If one is refused or not
// answered, those that this call has created are cancelled; jobs that existed before it go on.
// FAILED_PRECONDITION: one of the jobs exists and has failed or was cancelled.
TeamSubmission SubmitTeam(JobClient& client, const std::vector<job::v1::SubmitRequest>& requests);

// Of the same job.
job::v1::ValidateRequest ToValidateRequest(const job::v1::SubmitRequest& submit);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_TEAM_SUBMISSION_H_
