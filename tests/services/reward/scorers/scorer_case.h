#ifndef FRESHET_TESTS_SERVICES_REWARD_SCORERS_SCORER_CASE_H_
#define FRESHET_TESTS_SERVICES_REWARD_SCORERS_SCORER_CASE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "services/reward/scorers/scorer_factory.h"

namespace freshet {

using Attributes = std::map<std::string, std::string>;

inline job::v1::RewardComponent OptionsOfType(const std::string& type) {
  job::v1::RewardComponent options;
  options.set_type(type);
  return options;
}

inline job::v1::Reward RewardOf(const std::map<std::string, job::v1::RewardComponent>& components) {
  job::v1::Reward reward;
  reward.mutable_components()->insert(components.begin(), components.end());
  return reward;
}

inline std::unique_ptr<Scorer> MustMakeScorer(const job::v1::RewardComponent& options) {
  absl::StatusOr<std::unique_ptr<Scorer>> scorer = MakeScorer(options);
  EXPECT_TRUE(scorer.ok()) << scorer.status();
  return scorer.ok() ? *std::move(scorer) : nullptr;
}

inline absl::StatusOr<ComponentScore> ScoreText(const Scorer& scorer, const std::string& completion,
                                                const Attributes& attributes = {}) {
  return scorer.Score(ScoreInput{completion, 0, true, attributes, absl::Seconds(10)});
}

// Scores a completion; fails the test if it cannot be scored.
inline double ValueOf(const Scorer& scorer, const std::string& completion,
                      const Attributes& attributes = {}) {
  const absl::StatusOr<ComponentScore> score = ScoreText(scorer, completion, attributes);
  EXPECT_TRUE(score.ok()) << completion << ": " << score.status();
  return score.ok() ? score->value : -1;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_REWARD_SCORERS_SCORER_CASE_H_
