// Evaluations that a RolloutWorker runs beside its rollouts.

#include <algorithm>
#include <utility>

#include "rollout/rollout_worker.h"

namespace freshet {
namespace {

// Requests of the evaluation lane are numbered below zero, so that they never meet an ordinal.
constexpr int64_t kEvaluationRequests = -1;

}  // namespace

bool RolloutWorker::StartEvaluation(EvaluationRun run) {
  MutexLock lock(mu_);
  if (evaluating_ || ended_) return false;
  evaluating_ = true;
  queued_evaluation_ = std::move(run);
  return true;
}

bool RolloutWorker::EvaluationBusy() const {
  MutexLock lock(mu_);
  return evaluating_;
}

// Sequences that an evaluation may have in the engine: half of its places, so that rollouts go on
// beside it, and all of them when there is nothing else to generate.
int64_t RolloutWorker::EvaluationShare() const {
  const int64_t places = engine_.stats().capacity_sequences;
  const bool alone = running_.empty() && gate_closed_;
  return alone ? places : std::max<int64_t>(places / 2, 1);
}

// New leases would take the places that it has a right to.
bool RolloutWorker::EvaluationWaitsForEngine() const {
  return evaluation_.has_value() && evaluation_->submitted < evaluation_->run.prompts.size() &&
         evaluation_->in_flight() < EvaluationShare();
}

bool RolloutWorker::EvaluationFits(size_t prompt) const {
  const EvaluationRun& run = evaluation_->run;
  if (evaluation_->in_flight() >= EvaluationShare()) return false;
  if (engine_.Admissible(static_cast<int64_t>(run.prompts[prompt].size()), 1, run.sampling, 1) ==
      0) {
    return false;
  }
  // Episodes that wait for their environment hold no place in the engine, but will want one.
  return episodes_ == nullptr ||
         (!episodes_->waiting_for_engine() &&
          (episodes_->open() == 0 || episodes_->open() < engine_.stats().capacity_sequences));
}

absl::Status RolloutWorker::SubmitEvaluation(size_t prompt) {
  const EvaluationRun& run = evaluation_->run;
  const auto number = static_cast<int64_t>(prompt);
  if (episodes_ != nullptr) {
    EpisodeGroup group{Lane::kEvaluation, number, run.prompts[prompt], {}, run.seed, number, {0},
                       run.sampling};
    if (prompt < run.attributes.size()) group.attributes = run.attributes[prompt];
    episodes_->Start(std::move(group));
    return absl::OkStatus();
  }
  GenerationRequest request;
  request.id = kEvaluationRequests - number;
  request.lane = Lane::kEvaluation;
  request.prompt_ids = run.prompts[prompt];
  request.seed = run.seed;
  request.ordinal = number;
  request.sample_indices = {0};
  request.sampling = run.sampling;
  return engine_.Submit(std::move(request));
}

void RolloutWorker::AdvanceEvaluation() {
  if (!evaluation_.has_value()) {
    MutexLock lock(mu_);
    if (!queued_evaluation_.has_value()) return;
    evaluation_ = ActiveEvaluation{std::move(*queued_evaluation_), 0, 0, {}};
    queued_evaluation_.reset();
  }
  ActiveEvaluation& active = *evaluation_;
  if (active.submitted == 0 && active.responses.empty()) {
    active.responses.resize(active.run.prompts.size());
    const absl::Status status = engine_.LoadWeights(Lane::kEvaluation, active.run.weights);
    if (!status.ok()) return FinishEvaluation(status);
  }
  while (active.submitted < active.run.prompts.size() && EvaluationFits(active.submitted)) {
    const absl::Status status = SubmitEvaluation(active.submitted);
    if (!status.ok()) return FinishEvaluation(status);
    ++active.submitted;
  }
  if (active.finished == active.run.prompts.size()) FinishEvaluation(absl::OkStatus());
}

void RolloutWorker::DeliverEvaluation(int64_t prompt, absl::StatusOr<Response> response) {
  if (!evaluation_.has_value()) return;
  if (!response.ok()) return FinishEvaluation(response.status());
  evaluation_->responses[static_cast<size_t>(prompt)] = *std::move(response);
  ++evaluation_->finished;
}

void RolloutWorker::FinishEvaluation(absl::Status status) {
  std::optional<ActiveEvaluation> ended = std::exchange(evaluation_, std::nullopt);
  {
    MutexLock lock(mu_);
    if (!ended.has_value()) {
      if (!queued_evaluation_.has_value()) return;
      ended = ActiveEvaluation{std::move(*queued_evaluation_), 0, 0, {}};
      queued_evaluation_.reset();
    }
    evaluating_ = false;
  }
  if (status.ok()) return ended->run.done(std::move(ended->responses));
  for (size_t i = 0; i < ended->submitted; ++i) {
    const auto number = static_cast<int64_t>(i);
    if (episodes_ != nullptr) {
      episodes_->Cancel(Lane::kEvaluation, number);
    } else {
      engine_.Cancel(kEvaluationRequests - number);
    }
  }
  ended->run.done(std::move(status));
}

}  // namespace freshet
