#ifndef FRESHET_LOCAL_EVALUATOR_H_
#define FRESHET_LOCAL_EVALUATOR_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/evaluation_store.h"
#include "local/job_setup.h"
#include "rollout/worker/rollout_worker.h"
#include "runlog/step_metrics.h"

namespace freshet {

// Evaluates versions on the held-out rows through the store: the rollout worker answers alongside
// its rollouts, and a reward worker scores. One evaluation runs at a time, until its result is
// taken; one that is due meanwhile is skipped. Thread-safe.
class Evaluator {
 public:
  // Uses the first min(eval.rows, size) held-out rows. All arguments must outlive this object.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const JobSetup& setup,
                                                           EvaluationStore& store,
                                                           RolloutWorker& worker,
                                                           const Clock& clock);

  // Starts evaluating `weights`; returns false if an evaluation is running.
  absl::StatusOr<bool> Start(const WeightSnapshot& weights);
  // Waits until no evaluation is running, `timeout` has passed or Close(). Returns whether none is
  // running.
  bool AwaitIdle(absl::Duration timeout);
  // Ends all current and future waits. No results are available afterwards.
  void Close();

  // Passes the result, if there is one, to `record` and returns record's status. The evaluation
  // counts as running until then. The result is an error if no row has a score or the worker
  // abandoned the evaluation.
  absl::Status TakeResult(const std::function<absl::Status(absl::StatusOr<EvalMetrics>)>& record);

 private:
  Evaluator(const JobSetup& setup, EvaluationStore& store, RolloutWorker& worker,
            const Clock& clock)
      : setup_(setup), store_(store), worker_(worker), clock_(clock) {}

  const JobSetup& setup_;
  EvaluationStore& store_;
  RolloutWorker& worker_;
  const Clock& clock_;
  std::vector<std::shared_ptr<const Prompt>> prompts_;

  Mutex mu_;
  CondVar idle_;
  std::string running_ ABSL_GUARDED_BY(mu_);  // id; "" if none
  PolicyVersion policy_ ABSL_GUARDED_BY(mu_);
  absl::Time started_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_EVALUATOR_H_
