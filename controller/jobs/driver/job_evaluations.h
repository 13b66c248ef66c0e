#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/driver/evaluation_score.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/plan/evaluation_plan.h"

namespace freshet {

// The evaluations of one job: directs a rollout when one is due, receives its report, scores it on
// its own thread, and returns the row to the driver. Report and Stop are thread-safe; the driver's
// thread calls the other methods.
class JobEvaluations {
 public:
  JobEvaluations(WorkerHub& hub, RewardGateway& rewards, const ControllerTiming& timing,
                 const Clock& clock, std::string job, job::v1::JobSpec spec,
                 std::shared_ptr<const JobInputs> inputs);
  ~JobEvaluations();

  // An evaluation that finished since the last turn.
  struct Ended {
    int64_t version = 0;  // the version that was due
    std::optional<EvalMetrics> metrics;
    std::string error;  // set if `metrics` is not
  };
  // Starts due evaluations and checks running ones. `committed`: newest version that may be
  // evaluated, or -1; `done_upto`: largest version evaluated.
  std::optional<Ended> Turn(int64_t committed, int64_t done_upto,
                            const std::vector<EvaluatorSlot>& slots,
                            std::vector<std::string> reward_addresses, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool idle() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t skipped() const ABSL_LOCKS_EXCLUDED(mu_);

  // Handles a rollout's report; unexpected ones are ignored.
  void Report(const cluster::v1::ReportEvaluationRequest& report) ABSL_LOCKS_EXCLUDED(mu_);
  // Stops scoring. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Direct(const EvaluationTracker::Running& running, const std::vector<EvaluatorSlot>& slots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Score(const cluster::v1::ReportEvaluationRequest& report) ABSL_LOCKS_EXCLUDED(mu_);

  WorkerHub& hub_;
  RewardGateway& rewards_;
  const ControllerTiming timing_;
  const Clock& clock_;
  const std::string job_;
  const job::v1::JobSpec spec_;
  const std::shared_ptr<const JobInputs> inputs_;

  mutable Mutex mu_;
  CondVar stopping_;
  EvaluationTracker tracker_ ABSL_GUARDED_BY(mu_);
  int64_t begun_ ABSL_GUARDED_BY(mu_) = -1;
  int64_t skipped_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> reward_addresses_ ABSL_GUARDED_BY(mu_);
  std::optional<cluster::v1::ReportEvaluationRequest> report_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::StatusOr<EvalMetrics>> result_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread scorer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_
