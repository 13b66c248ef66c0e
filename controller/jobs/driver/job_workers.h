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
#include "controller/jobs/plan/watchdog.h"
#include "controller/jobs/plan/work_failures.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

// What the workers of a job report at one moment.
struct WorkersReport : WorkersHealth {
  // Failed assignments whose backoff has passed, for AssignmentRules::replace.
  std::map<std::string, std::string> replace;
  // An error that ends the job; "" if none.
  std::string fatal;
  std::vector<cluster::v1::Role> failed;  // one entry per failure since the last Inspect
  bool trainer_running = false;
  double trainer_busy = 0;  // share of time since the previous status
  bool trainer_done = false;
  std::string trainer_address;
  int64_t trainer_sequence = 0;           // of its last status
  bool trainer_lists_work = false;        // its last status names the assignment
  std::vector<EvaluatorSlot> evaluators;  // running rollouts that have weights
  std::vector<job::v1::Rank> ranks;       // of the trainer, if several
};

// The workers of one job: reads their reports, decides when failed work restarts, and tells the hub
// the desired assignments. Not thread-safe.
class JobWorkers {
 public:
  // Revisions of member lists start above `first_revision`, so that they increase across leaders.
  JobWorkers(WorkerHub& hub, const ControllerTiming& timing, std::string job,
             int64_t first_revision)
      : hub_(hub), job_(std::move(job)), revision_(first_revision), work_failures_(timing) {}

  // `committed`: version that the store has committed.
  WorkersReport Inspect(const JobRecord& record, const std::vector<Member>& workers,
                        int64_t committed, absl::Time now);

  // Marks the record's assignments as in force before their content is known.
  void Reserve(const JobRecord& record);
  // Publishes the desired assignments. `base` is an Assign without id, paused and members.
  // `with_trainer` is false for a job that is being cancelled: the trainer's work ends.
  void Publish(const JobRecord& record, const std::vector<Member>& workers,
               std::shared_ptr<const cluster::v1::Assign> base, bool paused, bool with_trainer);
  void Dismiss() { hub_.SetDesired(job_, {}); }

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
  const std::string job_;
  int64_t revision_;
  std::string members_text_;  // of the last list, to detect changes
  std::shared_ptr<const cluster::v1::Members> members_;
  std::string published_;                    // last value passed to SetDesired
  std::map<std::string, Failure> failures_;  // by assignment id
  WorkFailures work_failures_;
  int64_t committed_ = -1;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_WORKERS_H_
