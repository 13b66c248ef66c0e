#ifndef FRESHET_SERVICES_REWARD_SCORERS_ENVIRONMENT_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_ENVIRONMENT_SCORER_H_

#include "services/reward/scorers/scorer.h"

namespace freshet {

// The environment's reward for the sample's episode. FAILED_PRECONDITION for a sample without an
// episode. Thread-safe.
class EnvironmentScorer final : public Scorer {
 public:
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_ENVIRONMENT_SCORER_H_
