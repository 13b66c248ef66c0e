#include "local/evaluator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/row_tokens.h"
#include "rollout/worker/rollout_setup.h"
#include "services/reward/worker/reward_setup.h"

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
  run.done = [this, policy, started](absl::StatusOr<EvaluationAnswers> given) {
    if (!given.ok()) {
      return Finish(StatusOf(given.status().code(), "evaluation of version ", policy.version, ": ",
                             Message(given.status())));
    }
    scoring_ = std::jthread(
        [this, answers = Answers{policy, started, *std::move(given)}] { Finish(Score(answers)); });
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
  // The worker becomes idle shortly after it has delivered the responses.
  while (running_ || worker_.EvaluationBusy()) {
    const absl::Duration left = deadline - clock_.Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    idle_.WaitFor(mu_, std::min(left, running_ ? absl::Seconds(1) : absl::Milliseconds(1)));
  }
  return true;
}

Evaluator::~Evaluator() { Close(); }

void Evaluator::Close() {
  {
    MutexLock lock(mu_);
    closed_ = true;
    idle_.NotifyAll();
  }
  give_up_.request_stop();
}

void Evaluator::Finish(absl::StatusOr<EvalMetrics> result) {
  {
    MutexLock lock(mu_);
    if (closed_) return;
    result_ = std::move(result);
  }
  if (on_finished_) on_finished_();
}

absl::Status Evaluator::TakeResult(
    const std::function<absl::Status(absl::StatusOr<EvalMetrics>)>& record) {
  std::optional<absl::StatusOr<EvalMetrics>> result;
  {
    MutexLock lock(mu_);
    if (closed_) return absl::OkStatus();
    result = std::exchange(result_, std::nullopt);
  }
  if (!result.has_value()) return absl::OkStatus();
  const absl::Status status = record(*std::move(result));
  MutexLock lock(mu_);
  running_ = false;
  idle_.NotifyAll();
  return status;
}

absl::StatusOr<freshet::Score> Evaluator::ScoreRow(size_t row, const Response& response) const {
  const std::string text = setup_.model.tokenizer->Decode(response.response_ids, true);
  const ScoreInput input{text,
                         static_cast<int32_t>(response.response_ids.size()),
                         response.finish == FinishReason::kStop,
                         rows_[row].attributes,
                         absl::Milliseconds(setup_.spec.reward().timeout_ms()),
                         response.env_reward,
                         give_up_.get_token()};
  absl::StatusOr<freshet::Score> score = setup_.scorer->Score(input);
  for (int64_t attempt = 1; !score.ok() && !input.cancel.stop_requested() &&
                            attempt < setup_.spec.reward().max_attempts();
       ++attempt) {
    score = setup_.scorer->Score(input);
  }
  return score;
}

absl::StatusOr<EvalMetrics> Evaluator::Score(const Answers& answers) const {
  std::vector<absl::StatusOr<freshet::Score>> scores(rows_.size());
  std::atomic<size_t> next{0};
  const auto score_rows = [&] {
    for (size_t i = next++; i < rows_.size(); i = next++) {
      if (give_up_.stop_requested()) return;
      const absl::StatusOr<Response>& answer = answers.answers[i];
      scores[i] = answer.ok() ? ScoreRow(i, *answer) : answer.status();
    }
  };
  std::vector<std::jthread> helpers;
  const int64_t parallel =
      std::min(RewardParallel(setup_.spec), static_cast<int64_t>(rows_.size()));
  for (int64_t i = 1; i < parallel; ++i) helpers.emplace_back(score_rows);
  score_rows();
  helpers.clear();
  if (give_up_.stop_requested()) return absl::CancelledError("the evaluation was given up");

  EvalMetrics metrics;
  metrics.eval_name = setup_.spec.eval().name();
  metrics.policy_version = answers.policy.version;
  metrics.lineage = answers.policy.lineage;
  metrics.rows = static_cast<int64_t>(rows_.size());
  // In row order, so that the floating-point sums are reproducible.
  std::string first_failure;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const absl::StatusOr<freshet::Score>& score = scores[i];
    if (!score.ok()) {
      if (metrics.eval_failed_rows++ == 0) {
        first_failure = StrCat("row ", i, ": ", Message(score.status()));
      }
      continue;
    }
    metrics.eval_accuracy += score->reward;
    for (const auto& [name, value] : score->components) metrics.reward_components[name] += value;
    metrics.completion_length_mean += static_cast<double>(answers.answers[i]->response_ids.size());
  }
  if (metrics.eval_failed_rows > 0) {
    FRESHET_LOG(Warning) << "event=evaluation_rows_failed version=" << metrics.policy_version
                         << " count=" << metrics.eval_failed_rows
                         << " first=" << LogQuoted(first_failure);
  }
  const int64_t scored = metrics.rows - metrics.eval_failed_rows;
  if (scored == 0) {
    return FailedPrecondition("evaluation of version ", answers.policy.version, ": none of ",
                              metrics.rows, " rows has a score; ", first_failure);
  }
  // Sum before dividing, so that a perfect score is exactly 1.
  const auto count = static_cast<double>(scored);
  metrics.eval_accuracy /= count;
  for (auto& [name, value] : metrics.reward_components) value /= count;
  metrics.completion_length_mean /= count;
  metrics.eval_seconds = absl::ToDoubleSeconds(clock_.Now() - answers.started);
  return metrics;
}

int64_t Evaluator::skipped() const {
  MutexLock lock(mu_);
  return skipped_;
}

}  // namespace freshet
