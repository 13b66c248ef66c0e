#include "local/evaluator.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"
#include "rollout/worker/rollout_setup.h"
#include "runlog/evaluation_summary.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const JobSetup& setup,
                                                             EvaluationStore& store,
                                                             RolloutWorker& worker,
                                                             const Clock& clock) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(setup, store, worker, clock));
  const std::vector<job::v1::EvalSet> sets = EvalSets(setup.spec);
  for (size_t i = 0; i < sets.size(); ++i) {
    EvaluatedSet& set = evaluator->sets_.emplace_back();
    set.set = sets[i];
    set.sampling = setup.eval_sampling[i];
    const Dataset& data = *setup.data.held_out[i];
    const int64_t rows = std::min(sets[i].rows(), data.size());
    for (int64_t row = 0; row < rows; ++row) {
      FRESHET_ASSIGN_OR_RETURN(DatasetRow text, data.Get(row));
      FRESHET_ASSIGN_OR_RETURN(set.prompts.emplace_back(),
                               MakeHeldOutPrompt(setup.spec, *setup.model.tokenizer, row,
                                                 text.prompt, std::move(text.attributes)));
    }
  }
  return evaluator;
}

absl::StatusOr<bool> Evaluator::Start(const WeightSnapshot& weights,
                                      const std::set<std::string>& done) {
  MutexLock lock(mu_);
  if (!running_.empty() || worker_.EvaluationBusy()) return false;
  weights_ = weights;
  waiting_.clear();
  for (const EvaluatedSet& set : sets_) {
    if (!done.contains(set.set.name())) waiting_.push_back(&set);
  }
  return StartNext();
}

absl::StatusOr<bool> Evaluator::StartNext() {
  running_.clear();
  if (waiting_.empty()) {
    weights_.reset();
    return true;
  }
  set_ = waiting_.front();
  waiting_.pop_front();
  const PolicyVersion& policy = weights_->manifest.policy;
  const std::string id = StrCat(setup_.store.job, "/eval/", set_->set.name(), "/", policy.lineage,
                                "/", policy.version);
  EvaluationRun run{id,
                    *weights_,
                    set_->prompts,
                    set_->set.samples_per_prompt(),
                    set_->sampling,
                    EvalSeed(setup_.spec)};
  FRESHET_RETURN_IF_ERROR(store_.Begin(id, static_cast<int64_t>(run.samples())));
  if (!worker_.StartEvaluation(std::move(run))) {
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
  const EvaluatedSet* set = nullptr;
  int64_t version = 0;
  absl::Time started;
  {
    MutexLock lock(mu_);
    if (closed_ || running_.empty()) return absl::OkStatus();
    id = running_;
    set = set_;
    version = weights_->manifest.policy.version;
    started = started_;
  }
  FRESHET_ASSIGN_OR_RETURN(const EvaluationState state, store_.Read(id));
  if (state.rows.empty() && state.abandoned.empty()) return absl::OkStatus();
  absl::StatusOr<EvalMetrics> result = absl::CancelledError(state.abandoned);
  if (state.abandoned.empty()) result = SummarizeEvaluation(set->set, state);
  if (result.ok()) {
    result->eval_seconds = absl::ToDoubleSeconds(clock_.Now() - started);
  } else {
    result = StatusOf(result.status().code(), "evaluation ", set->set.name(), " of version ",
                      version, ": ", Message(result.status()));
  }
  FRESHET_RETURN_IF_ERROR(store_.End(id));
  const absl::Status status = record(std::move(result));
  MutexLock lock(mu_);
  const absl::Status next = StartNext().status();
  idle_.NotifyAll();
  return status.ok() ? next : status;
}

}  // namespace freshet
