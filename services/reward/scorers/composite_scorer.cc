#include "services/reward/scorers/composite_scorer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/str_cat.h"
#include "base/task_field.h"
#include "base/transient.h"
#include "job/reward_types.h"
#include "job/tasks.h"

namespace freshet {
namespace {

void AddSteps(double weight, const std::vector<StepReward>& steps, std::map<int32_t, double>& sum) {
  if (weight == 0) return;
  for (const auto& [end, reward] : steps) sum[end] += weight * reward;
}

// Larger ones indicate a faulty scorer, and training on them would fail.
constexpr double kMaxReward = 1e30;

bool IsReward(double value) { return std::abs(value) <= kMaxReward; }  // false for NaN

}  // namespace

void CompositeScorer::Add(std::string name, double weight, std::unique_ptr<Scorer> scorer,
                          Condition condition) {
  const auto place =
      condition.only_if.empty()
          ? std::find_if(components_.begin(), components_.end(),
                         [](const Component& other) { return !other.condition.only_if.empty(); })
          : components_.end();
  components_.insert(place, {.name = std::move(name),
                             .weight = weight,
                             .scorer = std::move(scorer),
                             .condition = std::move(condition)});
}

absl::StatusOr<freshet::Score> CompositeScorer::Score(const ScoreInput& input) const {
  if (observer_ == nullptr) return AddUp(input);
  const absl::Time start = SystemClock::Get().Now();
  observer_->OnBegin();
  absl::StatusOr<freshet::Score> score = AddUp(input);
  observer_->OnEnd(score.status(), score.ok() ? score->outcome : ScoreOutcome::kInfraError,
                   SystemClock::Get().Now() - start);
  return score;
}

absl::StatusOr<ComponentScore> CompositeScorer::Ask(const Component& component,
                                                    const ScoreInput& input) const {
  const absl::Time start = SystemClock::Get().Now();
  absl::StatusOr<ComponentScore> score = component.scorer->Score(input);
  if (score.ok() && !IsReward(score->value)) {
    score = Internal("value is ", score->value, "; it must be finite, and at most ", kMaxReward);
  }
  if (observer_ != nullptr) {
    observer_->OnComponent(component.name, score.status(),
                           score.ok() ? score->outcome : ScoreOutcome::kInfraError,
                           SystemClock::Get().Now() - start);
  }
  return score;
}

absl::StatusOr<freshet::Score> CompositeScorer::AddUp(const ScoreInput& input) const {
  const absl::Time deadline = SystemClock::Get().Now() + input.timeout;
  const std::string task = TaskOfRow(input.attributes);
  freshet::Score result;
  std::map<int32_t, double> steps;  // by end; those of the episode also without a reward
  for (const auto& [end, reward] : input.env_steps) steps[end] = 0;
  for (const Component& component : components_) {
    if (!ScoresTask(component.condition.tasks, task)) continue;
    const auto needed = result.components.find(component.condition.only_if);
    if (!component.condition.only_if.empty() &&
        (needed == result.components.end() || !(needed->second > 0))) {
      result.components[component.name] = 0;
      continue;
    }
    ScoreInput rest = input;
    rest.timeout = deadline - SystemClock::Get().Now();
    rest.calls.component = component.name;
    rest.calls.max_calls = component.condition.max_calls;
    if (rest.timeout <= absl::ZeroDuration()) {
      return StatusOf(absl::StatusCode::kDeadlineExceeded, "component ", component.name,
                      ": no time left of ", absl::FormatDuration(input.timeout));
    }
    const absl::StatusOr<ComponentScore> score = Ask(component, rest);
    if (!score.ok()) {
      const int64_t failures = IsTransient(score.status()) ? 0 : ++*component.failures;
      return StatusOf(score.status().code(), FailedComponent({component.name, failures}), ": ",
                      Message(score.status()));
    }
    *component.failures = 0;
    result.reward += component.weight * score->value;
    AddSteps(component.weight, score->steps, steps);
    result.components[component.name] = score->value;
    for (const auto& [part, value] : score->parts) {
      result.components[StrCat(component.name, "/", part)] = value;
    }
    if (score->outcome == ScoreOutcome::kWrongFormat) result.outcome = ScoreOutcome::kWrongFormat;
  }
  for (const auto& [end, reward] : steps) {
    if (!IsReward(reward)) return Internal("the reward of a step is ", reward, ", too large");
    result.step_rewards.push_back({end, reward});
  }
  if (!IsReward(result.reward)) return Internal("the reward is ", result.reward, ", too large");
  return result;
}

}  // namespace freshet
