#include "services/local/evaluator.h"

#include <algorithm>
#include <utility>

#include "model/row_tokens.h"
#include "rollout/rollout_setup.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const JobSetup& setup,
                                                             RolloutWorker& worker,
                                                             const Clock& clock,
                                                             std::function<void()> on_finished) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(setup, worker, clock, std::move(on_finished)));
  const Dataset& data = *setup.data.held_out;
  const int64_t rows = std::min(setup.spec.eval().rows(), data.size());
  for (int64_t i = 0; i < rows; ++i) {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, data.Get(i));
    FRESHET_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                             EncodePrompt(*setup.model.tokenizer, row.prompt));
    row.attributes["prompt"] = row.prompt;
    evaluator->rows_.push_back({std::move(ids), std::move(row.attributes)});
  }
  return evaluator;
}

bool Evaluator::Start(const WeightSnapshot& weights) {
  EvaluationRun run;
  run.weights = weights;
  run.sampling = setup_.eval_sampling;
  run.seed = EvalSeed(setup_.spec);
  for (const Row& row : rows_) {
    run.prompts.push_back(row.prompt_ids);
    if (setup_.spec.has_environment()) run.attributes.push_back(row.attributes);
  }
  const PolicyVersion policy = weights.manifest.policy;
  const absl::Time started = clock_.Now();
  run.done = [this, policy, started](absl::StatusOr<std::vector<Response>> responses) {
    {
      MutexLock lock(mu_);
      finished_ = Finished{policy, started, std::move(responses)};
    }
    if (on_finished_) on_finished_();
  };
  {
    MutexLock lock(mu_);
    if (running_) {
      ++skipped_;
      return false;
    }
    running_ = true;
  }
  if (worker_.StartEvaluation(std::move(run))) return true;
  MutexLock lock(mu_);
  running_ = false;
  ++skipped_;
  return false;
}

bool Evaluator::AwaitIdle(absl::Duration timeout) {
  const absl::Time deadline = clock_.Now() + timeout;
  MutexLock lock(mu_);
  // The worker is free again a moment after it has handed over the responses.
  while (running_ || worker_.EvaluationBusy()) {
    const absl::Duration left = deadline - clock_.Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    idle_.WaitFor(mu_, std::min(left, running_ ? absl::Seconds(1) : absl::Milliseconds(1)));
  }
  return true;
}

void Evaluator::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  idle_.NotifyAll();
}

absl::Status Evaluator::TakeResult(const std::function<absl::Status(EvalMetrics)>& record) {
  std::optional<Finished> finished;
  {
    MutexLock lock(mu_);
    finished = std::exchange(finished_, std::nullopt);
  }
  if (!finished.has_value()) return absl::OkStatus();
  absl::StatusOr<EvalMetrics> result = Score(*finished);
  const absl::Status status = result.ok() ? record(*std::move(result)) : result.status();
  MutexLock lock(mu_);
  running_ = false;
  idle_.NotifyAll();
  return status;
}

absl::StatusOr<EvalMetrics> Evaluator::Score(const Finished& finished) const {
  FRESHET_RETURN_IF_ERROR(finished.responses.status());
  const std::vector<Response>& responses = *finished.responses;
  EvalMetrics metrics;
  metrics.eval_name = setup_.spec.eval().name();
  metrics.policy_version = finished.policy.version;
  metrics.lineage = finished.policy.lineage;
  metrics.rows = static_cast<int64_t>(rows_.size());
  const auto count = static_cast<double>(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    const std::string text = setup_.model.tokenizer->Decode(responses[i].response_ids, true);
    const auto tokens = static_cast<int32_t>(responses[i].response_ids.size());
    const ScoreInput input{text,
                           tokens,
                           responses[i].finish == FinishReason::kStop,
                           rows_[i].attributes,
                           absl::Milliseconds(setup_.spec.reward().timeout_ms()),
                           responses[i].env_reward};
    absl::StatusOr<freshet::Score> score = setup_.scorer->Score(input);
    for (int64_t attempt = 1; !score.ok() && attempt < setup_.spec.reward().max_attempts();
         ++attempt) {
      score = setup_.scorer->Score(input);
    }
    if (!score.ok()) {
      return FailedPrecondition("evaluation of version ", finished.policy.version, ", row ", i,
                                ": ", Message(score.status()));
    }
    metrics.eval_accuracy += score->reward;
    for (const auto& [name, value] : score->components) metrics.reward_components[name] += value;
    metrics.completion_length_mean += tokens;
  }
  // Sums first, so that a perfect score is exactly 1.
  metrics.eval_accuracy /= count;
  for (auto& [name, value] : metrics.reward_components) value /= count;
  metrics.completion_length_mean /= count;
  metrics.eval_seconds = absl::ToDoubleSeconds(clock_.Now() - finished.started);
  return metrics;
}

int64_t Evaluator::skipped() const {
  MutexLock lock(mu_);
  return skipped_;
}

}  // namespace freshet
