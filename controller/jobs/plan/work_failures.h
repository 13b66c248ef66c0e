#ifndef FRESHET_CONTROLLER_JOBS_PLAN_WORK_FAILURES_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_WORK_FAILURES_H_

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

struct WorkFailure {
  cluster::v1::Role role = cluster::v1::ROLE_UNSPECIFIED;
  std::string worker;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string error;
};

struct FailureDecision {
  bool ends_job = false;
  absl::Duration pause;  // until the work restarts, unless the job ends
  int in_row = 0;        // consecutive failures of this worker, including this one
  std::string reason;    // set in both cases: who failed, why, and how often
};

// Decides what a failure of a job's worker leads to: its work restarts after a pause that doubles
// with each failure of the worker in a row, or the job ends.
//
// UNAVAILABLE, ABORTED and FAILED_PRECONDITION are transient. The trainer ends the job with any
// other error at once, and with transient ones after `trainer_failures` in a row without a
// committed step. Workers of another role end the job when each worker of that role that the job
// had within `failure_window` has failed `worker_failures` times in that time, without a committed
// step and with errors that are not transient; the reason names the most frequent error. A worker
// that is killed or lost has not failed, and may come back.
//
// No clock, no I/O: time is an argument. Not thread-safe.
class WorkFailures {
 public:
  explicit WorkFailures(const ControllerTiming& timing) : timing_(timing) {}

  // A step was committed. Forgets all failures but keeps the backoff of workers other than the
  // trainer: such a worker may fail repeatedly while others do its work.
  void OnStep();
  // The job has this worker.
  void OnWorker(cluster::v1::Role role, const std::string& worker, absl::Time now) {
    seen_[role][worker] = now;
  }
  FailureDecision Add(const WorkFailure& failure, absl::Time now);

 private:
  struct Row {
    cluster::v1::Role role = cluster::v1::ROLE_UNSPECIFIED;
    int failures = 0;
    absl::Time last;
  };
  // Last errors of a worker, oldest first, at most `worker_failures`.
  using Errors = std::deque<std::pair<absl::Time, std::string>>;
  int CountInRow(const WorkFailure& failure, absl::Time now);

  const ControllerTiming timing_;
  std::map<std::string, Row> rows_;  // by worker
  // Permanent errors since the last step, by role and worker; without the trainer's.
  std::map<cluster::v1::Role, std::map<std::string, Errors>> lasting_;
  // When the job last had each worker, within `failure_window`.
  std::map<cluster::v1::Role, std::map<std::string, absl::Time>> seen_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_WORK_FAILURES_H_
