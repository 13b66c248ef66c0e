#include "local/evaluator.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/worker/rollout_setup.h"
#include "runlog/evaluation_summary.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const JobSetup& setup,
                                                             EvaluationStore& store,
                                                             RolloutWorker& worker,
                                                             const Clock& clock) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(setup, store, worker, clock));
  const Dataset& data = *setup.data.held_out;
  const int64_t rows = std::min(setup.spec.eval().rows(), data.size());
  for (int64_t i = 0; i < rows; ++i) {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, data.Get(i));
    FRESHET_ASSIGN_OR_RETURN(evaluator->prompts_.emplace_back(),
                             MakeHeldOutPrompt(setup.spec.dataset(), *setup.model.tokenizer, i,
                                               row.prompt, std::move(row.attributes)));
  }
  return evaluator;
}

absl::StatusOr<bool> Evaluator::Start(const WeightSnapshot& weights) {
  MutexLock lock(mu_);
  if (!running_.empty() || worker_.EvaluationBusy()) return false;
  policy_ = weights.manifest.policy;
  const std::string id = StrCat(setup_.store.job, "/eval/", policy_.lineage, "/", policy_.version);
  FRESHET_RETURN_IF_ERROR(store_.Begin(id, std::ssize(prompts_)));
  if (!worker_.StartEvaluation(
          {id, weights, prompts_, setup_.eval_sampling, EvalSeed(setup_.spec)})) {
    FRESHET_RETURN_IF_ERROR(store_.End(id));
    return false;
  }
  running_ = id;
  started_ = clock_.Now();
  return true;
}

bool Evaluator::AwaitIdle(absl::Duration timeout) {
  const absl::Time deadline = clock_.Now() + timeout;
  MutexLock lock(mu_);
  // The worker becomes idle shortly after it has stored the last answer.
  while (!running_.empty() || worker_.EvaluationBusy()) {
    const absl::Duration left = deadline - clock_.Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    idle_.WaitFor(mu_, std::min(left, absl::Milliseconds(running_.empty() ? 1 : 1000)));
  }
  return true;
}

void Evaluator::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  idle_.NotifyAll();
}

absl::Status Evaluator::TakeResult(
    const std::function<absl::Status(absl::StatusOr<EvalMetrics>)>& record) {
  std::string id;
  PolicyVersion policy;
  absl::Time started;
  {
    MutexLock lock(mu_);
    if (closed_ || running_.empty()) return absl::OkStatus();
    id = running_;
    policy = policy_;
    started = started_;
  }
  FRESHET_ASSIGN_OR_RETURN(const EvaluationState state, store_.Read(id));
  if (state.rows.empty() && state.abandoned.empty()) return absl::OkStatus();
  absl::StatusOr<EvalMetrics> result = absl::CancelledError(state.abandoned);
  if (state.abandoned.empty()) result = SummarizeEvaluation(setup_.spec.eval().name(), state);
  if (result.ok()) {
    result->eval_seconds = absl::ToDoubleSeconds(clock_.Now() - started);
  } else {
    result = StatusOf(result.status().code(), "evaluation of version ", policy.version, ": ",
                      Message(result.status()));
  }
  FRESHET_RETURN_IF_ERROR(store_.End(id));
  const absl::Status status = record(std::move(result));
  MutexLock lock(mu_);
  running_.clear();
  idle_.NotifyAll();
  return status;
}

}  // namespace freshet
