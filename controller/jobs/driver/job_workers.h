#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_WORKERS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_WORKERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/plan/assignment_plan.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/plan/evaluation_plan.h"
#include "controller/jobs/plan/rollout_tally.h"
#include "controller/jobs/plan/watchdog.h"
#include "controller/jobs/plan/work_failures.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

// What the workers of a job report at one moment.
struct WorkersReport {
  // Failed assignments whose pause is over, for AssignmentRules::replace.
  std::map<std::string, std::string> replace;
  // An error that ends the job; "" without.
  std::string fatal;
  // For display: one error for each role with work that has not restarted yet.
  std::map<cluster::v1::Role, std::string> errors;
  std::vector<cluster::v1::Role> failed;  // one entry for each failure since the last Inspect
  std::string rollout_waits;              // what the first rollout that waits says of it
  std::string reward_waits;               // what the first reward worker that waits says of it
  // What the rollout says whose environment is silent for longest, and for how long.
  std::string env_waits;
  absl::Duration env_silence;
  int64_t trainers = 0, rollouts = 0, rewards = 0, envs = 0;  // assigned, alive and connected
  bool trainer_running = false;
  double trainer_busy = 0;  // share of time, since the status before
  bool trainer_done = false;
  std::string trainer_waits;
  std::string trainer_lost;  // "" when it is there
  std::string trainer_address;
  int64_t trainer_sequence = 0;     // of its last status
  bool trainer_lists_work = false;  // its last status names the assignment
  std::vector<std::string> reward_addresses;
  std::vector<EvaluatorSlot> evaluators;  // rollouts that run and have weights
};

// The workers of one job: reads their reports, decides when failed work is begun again, and tells
// the hub what the job wants of each of them. Confined to one thread.
class JobWorkers {
 public:
  // `first_revision`: revisions of member lists are above it, so that they grow from one leader to
  // the next.
  JobWorkers(WorkerHub& hub, const ControllerTiming& timing, std::string job,
             int64_t first_revision)
      : hub_(hub),
        timing_(timing),
        job_(std::move(job)),
        revision_(first_revision),
        work_failures_(timing) {}

  // `committed`: version that the store has committed.
  WorkersReport Inspect(const JobRecord& record, const std::vector<Member>& workers,
                        int64_t committed, absl::Time now);

  // Says that the record's assignments are in force though their content is not known yet.
  void Reserve(const JobRecord& record);
  // Tells the workers their work. `base` is an Assign without id, paused and members. Without the
  // trainer: its work ends, for a job that is being cancelled.
  void Publish(const JobRecord& record, const std::vector<Member>& workers,
               std::shared_ptr<const cluster::v1::Assign> base, bool paused, bool with_trainer);
  void Dismiss() { hub_.SetDesired(job_, {}); }
  // Tells the trainer what the rollouts have done, for the metrics of its steps, when that has
  // changed; at most once per heartbeat.
  void TellProgress(const JobRecord& record, const WorkersReport& report, absl::Time now);

 private:
  struct Failure {
    FailureDecision decision;
    absl::Time retry_at;
  };
  void InspectAssignment(const Assignment& assignment, const Member& member, absl::Time now,
                         WorkersReport& report);
  void OnFailed(const Assignment& assignment, const cluster::v1::AssignmentStatus& status,
                absl::Time now, WorkersReport& report);
  std::shared_ptr<const cluster::v1::Members> MakeMembers(const JobRecord& record,
                                                          const std::vector<Member>& workers);

  WorkerHub& hub_;
  const ControllerTiming timing_;
  const std::string job_;
  int64_t revision_;
  std::string members_text_;  // of the last list, to notice changes
  std::shared_ptr<const cluster::v1::Members> members_;
  std::string published_;                    // what SetDesired was told last
  std::map<std::string, Failure> failures_;  // by assignment id
  WorkFailures work_failures_;
  int64_t committed_ = -1;
  RolloutTally tally_;
  std::string told_progress_;  // assignment and sums that the trainer was told last
  absl::Time progress_told_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_WORKERS_H_
