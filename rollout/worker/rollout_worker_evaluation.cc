// Evaluations that a RolloutWorker runs alongside its rollouts.

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/engine/engine_call.h"
#include "rollout/worker/rollout_worker.h"

namespace freshet {
namespace {

// Evaluation requests have negative ids, which cannot collide with ordinals.
constexpr int64_t kEvaluationRequests = -1;
constexpr int kMostEvaluationTries = 3;  // per sample
// Answers that finish within this period are stored in one call.
constexpr absl::Duration kAnswersPeriod = absl::Milliseconds(100);

}  // namespace

bool RolloutWorker::StartEvaluation(EvaluationRun run) {
  MutexLock lock(mu_);
  if (ended_) return false;
  evaluating_ = true;
  queued_evaluation_ = std::move(run);
  return true;
}

bool RolloutWorker::EvaluationBusy() const {
  MutexLock lock(mu_);
  return evaluating_;
}

// Sequences that an evaluation may have in the engine: half of the capacity, so that rollouts
// continue, or all of it if there is nothing else to generate.
int64_t RolloutWorker::EvaluationShare() const {
  const int64_t places = engine_.stats().capacity_sequences;
  const bool alone = running_.empty() && gate_closed_;
  return alone ? places : std::max<int64_t>(places / 2, 1);
}

int64_t RolloutWorker::EvaluationInFlight() const {
  return evaluation_.has_value() ? static_cast<int64_t>(evaluation_->in_flight.size()) : 0;
}

// New leases would take the evaluation's share.
bool RolloutWorker::EvaluationWaitsForEngine() const {
  return evaluation_.has_value() && evaluation_->waits() && !evaluation_yields_ &&
         EvaluationInFlight() < EvaluationShare();
}

bool RolloutWorker::EvaluationFits(size_t sample) const {
  const EvaluationRun& run = evaluation_->run;
  if (EvaluationInFlight() >= EvaluationShare() || InHand() >= most_in_hand_) return false;
  const auto tokens = static_cast<int64_t>(run.prompt(sample)->prompt_ids.size());
  if (engine_.Admissible(tokens, 1, run.sampling, 1) == 0 && !engine_.Idle()) return false;
  // Episodes that wait for their environment use no capacity now but will later.
  return episodes_ == nullptr ||
         (!episodes_->waiting_for_engine() &&
          (episodes_->open() == 0 || episodes_->open() < engine_.stats().capacity_sequences));
}

absl::Status RolloutWorker::SubmitEvaluation(size_t sample) {
  const EvaluationRun& run = evaluation_->run;
  const auto number = static_cast<int64_t>(sample);
  const int64_t ordinal = number / run.samples_per_prompt;
  const auto index = static_cast<int32_t>(number % run.samples_per_prompt);
  const Prompt& prompt = *run.prompt(sample);
  if (episodes_ != nullptr) {
    episodes_->Start(EpisodeGroup{Lane::kEvaluation,
                                  number,
                                  prompt.prompt_ids,
                                  prompt.attributes,
                                  run.seed,
                                  ordinal,
                                  {index},
                                  run.sampling});
    return absl::OkStatus();
  }
  GenerationRequest request;
  request.id = kEvaluationRequests - number;
  request.lane = Lane::kEvaluation;
  request.prompt_ids = prompt.prompt_ids;
  request.seed = run.seed;
  request.ordinal = ordinal;
  request.sample_indices = {index};
  request.sampling = run.sampling;
  return CallEngine([&] { return engine_.Submit(std::move(request)); });
}

absl::Status RolloutWorker::AdvanceEvaluation() {
  std::optional<EvaluationRun> next;
  {
    MutexLock lock(mu_);
    next = std::exchange(queued_evaluation_, std::nullopt);
  }
  if (next.has_value() && !(evaluation_.has_value() && evaluation_->run.id == next->id)) {
    if (evaluation_.has_value()) {
      for (const size_t sample : evaluation_->in_flight) CancelEvaluation(sample);
    }
    evaluation_ = ActiveEvaluation{*std::move(next)};
  }
  if (!evaluation_.has_value()) return absl::OkStatus();
  ActiveEvaluation& active = *evaluation_;
  if (!std::exchange(active.loaded, true)) {
    const absl::Status status = renewer_.During(worker_, LeaseTokens(), [&] {
      return engine_.LoadWeights(Lane::kEvaluation, active.run.weights);
    });
    if (!status.ok()) {
      FinishEvaluation(std::string(Message(status)));
      return absl::OkStatus();
    }
  }
  absl::Status status;
  while (status.ok() && active.waits() && !QueueWaits() && !PausedByFailure() &&
         !evaluation_yields_) {
    const bool fresh = active.submitted < active.run.samples();
    const size_t sample = fresh ? active.submitted : active.again.front();
    if (!EvaluationFits(sample)) break;
    if (fresh) {
      ++active.submitted;
    } else {
      active.again.pop_front();
    }
    active.in_flight.insert(sample);
    status = SubmitEvaluation(sample);
    if (IsEngineFailure(status)) {
      FRESHET_RETURN_IF_ERROR(EngineFailed(status));
    } else if (!status.ok()) {
      DeliverEvaluation(sample, status);
    }
  }
  SendAnswers();
  return absl::OkStatus();
}

// Regenerates a sample in flight. `count`: count this as a failure of it.
void RolloutWorker::TakeBackEvaluation(size_t sample, const absl::Status& why, bool count) {
  CancelEvaluation(sample);
  if (count) {
    DeliverEvaluation(sample, why);
  } else {
    evaluation_->in_flight.erase(sample);
    evaluation_->again.push_back(sample);
  }
}

void RolloutWorker::CancelEvaluation(size_t sample) {
  const auto number = static_cast<int64_t>(sample);
  if (episodes_ != nullptr) {
    episodes_->Cancel(Lane::kEvaluation, number);
  } else {
    engine_.Cancel(kEvaluationRequests - number);
  }
}

void RolloutWorker::DeliverEvaluation(size_t sample, absl::StatusOr<Response> response) {
  if (!evaluation_.has_value() || evaluation_->in_flight.erase(sample) == 0) return;
  if (response.ok() && most_in_hand_ < std::numeric_limits<int64_t>::max()) ++most_in_hand_;
  if (!response.ok() && !absl::IsInvalidArgument(response.status()) &&
      ++evaluation_->failures[sample] < kMostEvaluationTries) {
    evaluation_->again.push_back(sample);
    return;
  }
  EvaluationAnswer answer{static_cast<int64_t>(sample), evaluation_->run.prompt(sample), nullptr,
                          ""};
  ++evaluation_->finished;
  if (response.ok()) {
    answer.response = std::make_shared<const Response>(*std::move(response));
    evaluation_->unsent.push_back(std::move(answer));
  } else {
    answer.error = StrCat("no answer: ", Message(response.status()));
    evaluation_->failed.push_back(std::move(answer));
  }
}

void RolloutWorker::SendAnswers() {
  ActiveEvaluation& active = *evaluation_;
  const bool all = active.finished == active.run.samples();
  if (all && !active.failed.empty()) {
    if (active.failed.size() == active.finished) {
      return FinishEvaluation(StrCat(
          "none of ", active.run.prompts.size(), " rows has an answer; row ",
          active.failed[0].row / active.run.samples_per_prompt, ": ", active.failed[0].error));
    }
    std::move(active.failed.begin(), active.failed.end(), std::back_inserter(active.unsent));
    active.failed.clear();
  }
  const absl::Time now = clock_.Now();
  if (!active.unsent.empty() && (all || now >= active.send_at) && !StoreAwaited()) {
    const absl::Status status = store_.evaluations().PutAnswers(
        active.run.id, active.run.weights.manifest.policy, active.unsent);
    active.send_at = now + kAnswersPeriod;
    if (StoreFailed(status)) return;
    if (!status.ok() && !absl::IsFailedPrecondition(status) && !absl::IsNotFound(status)) {
      return FinishEvaluation(std::string(Message(status)));
    }
    if (!status.ok()) {  // The store no longer has it.
      FRESHET_LOG(Info) << "event=evaluation_dropped reason=" << LogQuoted(Message(status));
      return FinishEvaluation("");
    }
    StoreWorks();
    active.unsent.clear();
  }
  if (all && active.unsent.empty()) FinishEvaluation("");
}

void RolloutWorker::FinishEvaluation(const std::string& abandoned) {
  std::optional<ActiveEvaluation> ended = std::exchange(evaluation_, std::nullopt);
  {
    MutexLock lock(mu_);
    if (!ended.has_value()) {
      if (!queued_evaluation_.has_value()) return;
      ended = ActiveEvaluation{std::move(*queued_evaluation_)};
      queued_evaluation_.reset();
    }
    evaluating_ = queued_evaluation_.has_value();
  }
  for (const size_t sample : ended->in_flight) CancelEvaluation(sample);
  if (abandoned.empty()) return;
  const absl::Status status = store_.evaluations().Abandon(ended->run.id, abandoned);
  if (!status.ok()) {
    FRESHET_LOG(Warning) << "event=evaluation_not_abandoned reason=" << LogQuoted(abandoned)
                         << " error=" << LogQuoted(Message(status));
  }
}

}  // namespace freshet
