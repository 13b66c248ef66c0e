#include "services/reward/scorers/environment_scorer.h"

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<ComponentScore> EnvironmentScorer::Score(const ScoreInput& input) const {
  if (!input.env_reward.has_value()) {
    return FailedPrecondition("the sample has no environment's reward: it was not an episode");
  }
  return ComponentScore{*input.env_reward};
}

}  // namespace freshet
