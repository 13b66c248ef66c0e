#ifndef FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

// If a job of a team fails or is cancelled, the others are cancelled. JobSpec.team names the team.
// All functions are pure.

bool HasFailedOrWasCancelled(const JobRecord& record);

struct TeamStop {
  std::string job;
  std::string cause;   // the job that failed or was cancelled
  std::string reason;  // "team sums: policy worker failed: disk full"
};

// The jobs to cancel now: those that have not ended and are not being cancelled, of whose team
// another job has failed or was cancelled since they were submitted or resumed last. The reason is
// that of the first such job. A job that has succeeded stops no other. In the order of `records`.
std::vector<TeamStop> FindTeamStops(const std::vector<JobRecord>& records);

// The other jobs of the team of `record` that have failed or were cancelled, which are resumed with
// it. FAILED_PRECONDITION: one of them is being cancelled.
absl::StatusOr<std::vector<std::string>> FindTeamResumes(const std::vector<JobRecord>& records,
                                                         const JobRecord& record);

// FAILED_PRECONDITION if a job of the team of `spec` that has not ended has the pool of `spec`: a
// pool serves one job at a time, so that each would wait for the other.
absl::Status CheckTeamPool(const std::vector<JobRecord>& records, const std::string& id,
                           const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_
