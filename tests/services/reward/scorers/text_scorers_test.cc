// Exact match, contains and length.
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

TEST(ExactMatchScorer, ComparesStrippedTexts) {
  const auto scorer = MustMakeScorer(OptionsOfType("exact_match"));
  const Attributes row = {{"answer", " 046\n"}};
  EXPECT_EQ(ValueOf(*scorer, "046", row), 1);
  EXPECT_EQ(ValueOf(*scorer, "\t046 \r\n", row), 1);
  EXPECT_EQ(ValueOf(*scorer, "46", row), 0);
  EXPECT_EQ(ValueOf(*scorer, "0 46", row), 0);
  EXPECT_EQ(ValueOf(*scorer, "", row), 0);
  EXPECT_EQ(ValueOf(*scorer, " ", {{"answer", ""}}), 1);
}

TEST(ExactMatchScorer, KeepsSpaceWhenAsked) {
  job::v1::RewardComponent options = OptionsOfType("exact_match");
  options.set_strip_space(false);
  const auto scorer = MustMakeScorer(options);
  EXPECT_EQ(ValueOf(*scorer, "a ", {{"answer", "a"}}), 0);
  EXPECT_EQ(ValueOf(*scorer, "a", {{"answer", "a"}}), 1);
}

TEST(ExactMatchScorer, IgnoresCaseWhenAsked) {
  job::v1::RewardComponent options = OptionsOfType("exact_match");
  EXPECT_EQ(ValueOf(*MustMakeScorer(options), "Yes", {{"answer", "yes"}}), 0);
  options.set_ignore_case(true);
  EXPECT_EQ(ValueOf(*MustMakeScorer(options), "Yes", {{"answer", "yEs"}}), 1);
}

TEST(ExactMatchScorer, FillsATemplate) {
  job::v1::RewardComponent options = OptionsOfType("exact_match");
  options.set_text("<{a}-{b}>");
  const auto scorer = MustMakeScorer(options);
  EXPECT_EQ(ValueOf(*scorer, "<x-y>", {{"a", "x"}, {"b", "y"}}), 1);
}

TEST(ExactMatchScorer, FailsWithoutTheAttribute) {
  const auto score = ScoreText(*MustMakeScorer(OptionsOfType("exact_match")), "x", {});
  EXPECT_EQ(score.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ContainsScorer, CountsUpToMinCountWithoutOverlap) {
  job::v1::RewardComponent options = OptionsOfType("contains");
  options.set_text("{name}");
  options.set_min_count(3);
  const auto scorer = MustMakeScorer(options);
  const Attributes row = {{"name", "aa"}};
  EXPECT_EQ(ValueOf(*scorer, "aa aa aa", row), 1);
  EXPECT_EQ(ValueOf(*scorer, "aaaaaa", row), 1);
  EXPECT_EQ(ValueOf(*scorer, "aaaaa", row), 0);  // overlapping: 4, not overlapping: 2
  EXPECT_EQ(ValueOf(*scorer, "aa AA aa", row), 0);
  EXPECT_EQ(ValueOf(*scorer, "", row), 0);
}

TEST(ContainsScorer, IgnoresCaseWhenAsked) {
  job::v1::RewardComponent options = OptionsOfType("contains");
  options.set_text("hApPy");
  options.set_ignore_case(true);
  EXPECT_EQ(ValueOf(*MustMakeScorer(options), "HAPPY"), 1);
}

TEST(ContainsScorer, FailsOnAnEmptyText) {
  job::v1::RewardComponent options = OptionsOfType("contains");
  options.set_text("{name}");
  const auto score = ScoreText(*MustMakeScorer(options), "x", {{"name", ""}});
  EXPECT_EQ(score.status().code(), absl::StatusCode::kFailedPrecondition);
}

double LengthValue(const job::v1::RewardComponent& options, int32_t tokens) {
  const Attributes none;
  const auto score = MustMakeScorer(options)->Score(ScoreInput{"", tokens, true, none});
  EXPECT_TRUE(score.ok());
  return score.ok() ? score->value : -9;
}

TEST(LengthScorer, FallsLinearlyOutsideTheWindow) {
  job::v1::RewardComponent options = OptionsOfType("length");
  options.set_min_tokens(8);
  options.set_max_tokens(12);
  options.set_margin_tokens(4);
  const struct {
    int32_t tokens;
    double want;
  } cases[] = {{0, 0},  {4, 0},     {5, 0.25},  {7, 0.75}, {8, 1},
               {12, 1}, {13, 0.75}, {15, 0.25}, {16, 0},   {1000, 0}};
  for (const auto& c : cases) EXPECT_EQ(LengthValue(options, c.tokens), c.want) << c.tokens;
}

TEST(LengthScorer, DropsAtOnceWithoutAMargin) {
  job::v1::RewardComponent options = OptionsOfType("length");
  options.set_max_tokens(12);
  EXPECT_EQ(LengthValue(options, 0), 1);
  EXPECT_EQ(LengthValue(options, 12), 1);
  EXPECT_EQ(LengthValue(options, 13), 0);
}

TEST(LengthScorer, PunishesOverlongSoftly) {
  job::v1::RewardComponent options = OptionsOfType("length");
  options.set_shape("soft_overlong");
  options.set_max_tokens(20);
  options.set_margin_tokens(4);
  // 0 up to 16 = 20 - 4, then ((20 - 4) - tokens) / 4, -1 from 20 on.
  const struct {
    int32_t tokens;
    double want;
  } cases[] = {{0, 0}, {16, 0}, {17, -0.25}, {18, -0.5}, {20, -1}, {21, -1}};
  for (const auto& c : cases) EXPECT_EQ(LengthValue(options, c.tokens), c.want) << c.tokens;
}

job::v1::RewardComponent BudgetOptions() {
  job::v1::RewardComponent options = OptionsOfType("length");
  options.set_shape("budget");
  options.set_text("{budget}");
  return options;
}

absl::StatusOr<double> BudgetValue(const job::v1::RewardComponent& options,
                                   const std::string& budget, int32_t tokens) {
  const Attributes row = {{"budget", budget}};
  const auto score = MustMakeScorer(options)->Score(ScoreInput{"", tokens, true, row});
  if (!score.ok()) return score.status();
  return score->value;
}

TEST(LengthScorer, PunishesTokensBeyondTheBudgetOfTheRow) {
  const struct {
    const char* budget;
    int32_t tokens;
    double want;
  } cases[] = {{"8", 0, 0},   {"8", 8, 0},       {"8", 10, -0.25}, {"8", 16, -1},    {"8", 99, -1},
               {"16", 16, 0}, {"16", 20, -0.25}, {"1", 2, -1},     {"1048576", 8, 0}};
  for (const auto& c : cases) {
    EXPECT_EQ(*BudgetValue(BudgetOptions(), c.budget, c.tokens), c.want)
        << c.budget << " " << c.tokens;
  }
}

TEST(LengthScorer, FallsOverTheMarginBeyondTheBudget) {
  job::v1::RewardComponent options = BudgetOptions();
  options.set_margin_tokens(4);
  EXPECT_EQ(*BudgetValue(options, "8", 9), -0.25);
  EXPECT_EQ(*BudgetValue(options, "8", 12), -1);
  options.set_margin_tokens(0);
  EXPECT_EQ(*BudgetValue(options, "8", 8), 0);
  EXPECT_EQ(*BudgetValue(options, "8", 9), -1);
}

TEST(LengthScorer, FailsOnABudgetThatIsNoNumberOfTokens) {
  for (const char* budget :
       {"", "0", "-8", "8.5", "1e3", "many", "8 tokens", "1048577", "99999999999999999999"}) {
    const absl::StatusOr<double> value = BudgetValue(BudgetOptions(), budget, 8);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kFailedPrecondition) << budget;
    EXPECT_EQ(
        std::string(value.status().message()),
        "the row's budget is not a whole number of tokens from 1 to 1048576; correct the row, "
        "or the component's text");
  }
}

}  // namespace
}  // namespace freshet
