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

inline ScorerOptions OptionsOfType(const std::string& type) {
  ScorerOptions options;
  options.type = type;
  return options;
}

inline std::unique_ptr<Scorer> MustMakeScorer(const ScorerOptions& options) {
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
