#include "gtest/gtest.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

std::unique_ptr<Scorer> Numeric(const std::string& place, double tolerance = 0) {
  job::v1::RewardComponent options = OptionsOfType("numeric");
  options.set_place(place);
  options.set_tolerance(tolerance);
  return MustMakeScorer(options);
}

struct Case {
  const char* place;
  const char* gold;
  const char* completion;
  double value;
  ScoreOutcome outcome;
};

TEST(NumericScorer, ComparesTheStatedNumberWithTheGoldOne) {
  constexpr ScoreOutcome kOk = ScoreOutcome::kOk;
  constexpr ScoreOutcome kWrongFormat = ScoreOutcome::kWrongFormat;
  const Case cases[] = {
      {"any", "so 9*2=18\n#### 18", "#### 18", 1, kOk},
      {"any", "#### 18", "#### 18.00 dollars", 1, kOk},
      {"any", "#### 1,800", "#### $1800.", 1, kOk},
      {"any", "#### 18", "#### 17\n#### 18", 1, kOk},  // the last mark counts
      {"any", "#### 18", "#### 18\n#### 17", 0, kOk},
      {"any", "#### 18", "#### 18\nand then 5 more", 1, kOk},  // the answer ends with the line
      {"any", "#### 18", "#### 17 18", 0, kWrongFormat},       // two guesses
      {"any", "#### 18", "#### eighteen", 0, kWrongFormat},
      {"any", "#### 18", "18 ####", 0, kWrongFormat},
      {"any", "#### 18", "I get \\boxed{18} with 3 ducks", 1, kOk},
      {"any", "#### 18", "\\boxed{\\$18}", 1, kOk},
      {"any", "#### 18", "\\boxed{\\text{18}}", 1, kOk},
      {"any", "#### 18", "\\boxed{18", 1, kOk},  // not a box: uses the last number
      {"any", "#### 18", "3 ducks make 18.", 1, kOk},
      {"any", "#### 18", "18 or perhaps 17", 0, kOk},
      {"any", "#### 18", "no idea", 0, kWrongFormat},
      {"any", "#### 18", "", 0, kWrongFormat},
      {"any", "18", "18", 1, kOk},  // gold without a mark
      {"any", "#### -5", "16-21 = -5", 1, kOk},
      {"any", "#### -5", "the result is 5", 0, kOk},
      {"any", "#### 0.1", "0.1000000000000000055511151231257827", 0, kOk},
      {"any", "#### 9007199254740993", "9007199254740992", 0, kOk},  // equal as doubles
      {"last_hash", "#### 18", "the answer is 18", 0, kWrongFormat},
      {"last_hash", "#### 18", "#### 18", 1, kOk},
      {"boxed", "#### 18", "#### 18", 0, kWrongFormat},
      {"boxed", "#### 18", "\\boxed{17} no, \\boxed{18}", 1, kOk},
      {"last_number", "#### 18", "#### 17 and 18", 1, kOk},
  };
  for (const Case& c : cases) {
    const auto score = ScoreText(*Numeric(c.place), c.completion, {{"answer", c.gold}});
    ASSERT_TRUE(score.ok()) << c.completion << ": " << score.status();
    EXPECT_EQ(score->value, c.value) << c.place << ": " << c.completion;
    EXPECT_EQ(score->outcome, c.outcome) << c.place << ": " << c.completion;
  }
}

TEST(NumericScorer, AllowsADifferenceUpToTheTolerance) {
  const auto scorer = Numeric("any", 0.1);
  const Attributes gold = {{"answer", "18"}};
  EXPECT_EQ(ValueOf(*scorer, "18.1", gold), 1);
  EXPECT_EQ(ValueOf(*scorer, "17.9", gold), 1);
  EXPECT_EQ(ValueOf(*scorer, "18.11", gold), 0);
  EXPECT_EQ(ValueOf(*scorer, "-18", gold), 0);
  EXPECT_EQ(ValueOf(*scorer, std::string(6000, '9'), gold), 0);
}

TEST(NumericScorer, FailsOnAGoldAnswerThatIsNotOneNumber) {
  const auto scorer = Numeric("any");
  for (const Attributes& gold :
       {Attributes{}, Attributes{{"answer", "none"}}, Attributes{{"answer", "#### 1 or 2"}}}) {
    EXPECT_EQ(ScoreText(*scorer, "18", gold).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace freshet
