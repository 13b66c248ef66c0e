#include "local/run_evaluations.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/loop/trainer_setup.h"

namespace freshet {
namespace {

constexpr absl::Duration kEvaluationDeadline = absl::Minutes(10);  // for each set
// How long a stopping run waits for an evaluation that the trainer waits for.
constexpr absl::Duration kEvaluationGrace = absl::Seconds(2);

}  // namespace

RunEvaluations::RunEvaluations(const JobSetup& setup, const ResumePoint& resume,
                               std::unique_ptr<Evaluator> evaluator, RunRecorder& recorder,
                               const Clock& clock, std::function<bool()> stopping)
    : setup_(setup),
      resume_(resume),
      evaluator_(std::move(evaluator)),
      recorder_(recorder),
      clock_(clock),
      stopping_(std::move(stopping)),
      longest_(kEvaluationDeadline * static_cast<double>(setup.data.held_out.size())) {}

absl::Status RunEvaluations::StartIfDue(int64_t step, const WeightSnapshot& weights) {
  const bool last = step == setup_.spec.trainer().steps();
  if (last || step % setup_.spec.eval().every_steps() != 0) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(const bool started, Start(weights));
  if (!started) recorder_.EmitEvent("evaluation_skipped", {{"version", StrCat(step)}});
  return absl::OkStatus();
}

// Leaves out the sets on which an earlier process evaluated these weights.
absl::StatusOr<bool> RunEvaluations::Start(const WeightSnapshot& weights) {
  const bool loaded = weights.manifest.policy.version == resume_.origin.policy.version;
  return evaluator_->Start(weights, loaded ? resume_.evaluated : std::set<std::string>());
}

absl::Status RunEvaluations::BeforeStep(int64_t committed) {
  if (setup_.store.staleness.max > 0) return absl::OkStatus();
  awaited_ = true;
  const absl::Cleanup over = [this] { awaited_ = false; };
  if (evaluator_->AwaitIdle(longest_)) return absl::OkStatus();
  if (stopping_()) {
    recorder_.EmitEvent("evaluation_skipped", {{"version", StrCat(committed)}});
    return absl::OkStatus();
  }
  recorder_.OnEvaluationFailed(StrCat("the evaluation before step ", committed + 1,
                                      " did not end within ", absl::FormatDuration(longest_),
                                      "; it continues during training"));
  return absl::OkStatus();
}

std::vector<CheckpointScore> RunEvaluations::TakeScores() {
  MutexLock lock(mu_);
  return std::exchange(scores_, {});
}

absl::Status RunEvaluations::Record() {
  return evaluator_->TakeResult([this](absl::StatusOr<EvalMetrics> result) {
    if (result.ok()) {
      if (std::optional<CheckpointScore> score = ScoreOf(*result, setup_.spec)) {
        MutexLock lock(mu_);
        scores_.push_back(*std::move(score));
      }
      return recorder_.RecordEval(*std::move(result));
    }
    recorder_.OnEvaluationFailed(Message(result.status()));
    return absl::OkStatus();
  });
}

void RunEvaluations::GiveUpAwaited() {
  if (!awaited_) return;
  give_up_awaited_ = std::min(give_up_awaited_, clock_.Now() + kEvaluationGrace);
  if (clock_.Now() >= give_up_awaited_) evaluator_->Close();
}

absl::StatusOr<bool> RunEvaluations::EvaluateLast(const WeightSnapshot& weights) {
  give_up_last_ = std::min(give_up_last_, clock_.Now() + longest_);
  if (clock_.Now() >= give_up_last_) {
    recorder_.OnEvaluationFailed(
        StrCat("the last evaluation did not end within ", absl::FormatDuration(longest_)));
    return true;
  }
  FRESHET_RETURN_IF_ERROR(Record());
  if (evaluator_->AwaitIdle(absl::ZeroDuration())) {
    if (last_started_) return true;
    FRESHET_ASSIGN_OR_RETURN(last_started_, Start(weights));
  }
  return false;
}

}  // namespace freshet
