#ifndef FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/record/job_record.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// If a job of a team fails or is cancelled, the others are cancelled. If one succeeds, the others
// train what has been played with it, and then succeed too. JobSpec.team names the team. All
// functions are pure.

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

struct EndedPartner {
  std::string policy;
  absl::Time at;
};

// The jobs of the team of `record` that have succeeded.
std::vector<EndedPartner> FindEndedPartners(const std::vector<JobRecord>& records,
                                            const JobRecord& record);

// Progress of a job whose trainer is at work.
struct TeamProgress {
  StoreStats stats;
  std::string edge;  // of the store's Explanation
  int64_t steps = 0;
  int64_t groups_per_step = 1;
  absl::Time last;  // when ProgressMark(stats) last changed, or the rest was unknown, if later
};

// Why a job of a team ends before its last step, or "". All samples of a team are played by all its
// members, so once one has ended, a group that is not generated never will be. The job ends when
// its next step waits for such a group, none is being scored, and nothing has moved for
// `team_patience` since the first partner's end: a sample's result may come later than its
// partner's. If enough groups for a step are ready, the patience is `team_ready_patience`: with
// disposition `wait` the step waits for an older group and can go on once that is handed back.
std::string FindTeamEnd(const std::vector<EndedPartner>& partners, const TeamProgress& progress,
                        const ControllerTiming& timing, absl::Time now);

// How often a job may start to end with its team without a save.
constexpr int kMostTeamEnds = 3;

// Why a job fails that has started to end with its team `ends` times and has left trained steps
// unsaved each time, or "" if it may train them again. `error`: of the last save; may be "".
std::string FindTeamEndFailure(int ends, const std::string& error);

// The error of the last checkpoint if the trainer of `record` has reported one since the last
// `team_ended`, else "".
std::string FindSaveError(const JobRecord& record);

// The other jobs of the team of `record` that have failed or were cancelled, which are resumed with
// it. FAILED_PRECONDITION: one of them is being cancelled.
absl::StatusOr<std::vector<std::string>> FindTeamResumes(const std::vector<JobRecord>& records,
                                                         const JobRecord& record);

// FAILED_PRECONDITION if `record` has succeeded and a job of its team has not ended, which ends
// with it only as long as its record exists.
absl::Status CheckTeamEnded(const std::vector<JobRecord>& records, const JobRecord& record);

// FAILED_PRECONDITION if a job of the team of `spec` that has not ended has the pool of `spec`: a
// pool serves one job at a time, so that each would wait for the other.
absl::Status CheckTeamPool(const std::vector<JobRecord>& records, const std::string& id,
                           const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_TEAM_PLAN_H_
