#ifndef FRESHET_LOCAL_EVALUATOR_H_
#define FRESHET_LOCAL_EVALUATOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
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

// Evaluates versions on the job's evaluation sets through the store: the rollout worker answers
// alongside its rollouts, and a reward worker scores. One version is evaluated at a time, set by
// set, until all results are taken; one that is due meanwhile is skipped. Thread-safe.
class Evaluator {
 public:
  // A set uses its first min(rows, size) rows. All arguments must outlive this object.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const JobSetup& setup,
                                                           EvaluationStore& store,
                                                           RolloutWorker& worker,
                                                           const Clock& clock);

  // Starts evaluating `weights` on all sets but those named in `done`. Returns false if an
  // evaluation is running or the worker has stopped.
  absl::StatusOr<bool> Start(const WeightSnapshot& weights, const std::set<std::string>& done = {});
  // Waits until no evaluation is running, `timeout` has passed or Close(). Returns whether none is
  // running.
  bool AwaitIdle(absl::Duration timeout);
  // Ends all current and future waits. No results are available afterwards.
  void Close();

  // Passes the result of a set, if there is one, to `record`, returns record's status, and goes on
  // with the next set. The evaluation counts as running until the last result is taken. A result is
  // an error if no row has a score or the worker abandoned the evaluation.
  absl::Status TakeResult(const std::function<absl::Status(absl::StatusOr<EvalMetrics>)>& record);

 private:
  struct EvaluatedSet {
    job::v1::EvalSet set;
    SamplingParams sampling;
    std::vector<std::shared_ptr<const Prompt>> prompts;
  };

  Evaluator(const JobSetup& setup, EvaluationStore& store, RolloutWorker& worker,
            const Clock& clock)
      : setup_(setup), store_(store), worker_(worker), clock_(clock) {}

  // Starts the first waiting set, if any. Returns false if the worker has stopped.
  absl::StatusOr<bool> StartNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const JobSetup& setup_;
  EvaluationStore& store_;
  RolloutWorker& worker_;
  const Clock& clock_;
  std::vector<EvaluatedSet> sets_;

  Mutex mu_;
  CondVar idle_;
  std::string running_ ABSL_GUARDED_BY(mu_);                      // id; "" if none
  const EvaluatedSet* set_ ABSL_GUARDED_BY(mu_) = nullptr;        // that is running
  std::deque<const EvaluatedSet*> waiting_ ABSL_GUARDED_BY(mu_);  // for the same weights
  std::optional<WeightSnapshot> weights_ ABSL_GUARDED_BY(mu_);
  absl::Time started_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_EVALUATOR_H_
