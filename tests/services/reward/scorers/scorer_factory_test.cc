#include "services/reward/scorers/scorer_factory.h"

#include <cmath>
#include <functional>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using testing::StartsWith;

TEST(ScorerFactory, NamesTheBadOption) {
  const struct {
    const char* type;
    std::function<void(ScorerOptions&)> change;
    const char* message_start;
  } cases[] = {
      {"", [](ScorerOptions&) {}, "type is ''"},
      {"exactmatch", [](ScorerOptions&) {}, "type is 'exactmatch'; use exact_match"},
      {"contains", [](ScorerOptions&) {}, "text is missing"},
      {"contains", [](ScorerOptions& o) { o.text = ""; }, "text is missing"},
      {"contains", [](ScorerOptions& o) { o.text = "a", o.min_count = 0; }, "min_count is 0"},
      {"contains", [](ScorerOptions& o) { o.text = "a", o.pattern = "b"; },
       "pattern has no effect"},
      {"exact_match", [](ScorerOptions& o) { o.tolerance = 1; }, "tolerance has no effect"},
      {"numeric", [](ScorerOptions& o) { o.place = "first"; }, "place is 'first'"},
      {"numeric", [](ScorerOptions& o) { o.tolerance = -1; }, "tolerance is -1"},
      {"numeric", [](ScorerOptions& o) { o.tolerance = NAN; }, "tolerance is nan"},
      {"numeric", [](ScorerOptions& o) { o.ignore_case = true; }, "ignore_case has no effect"},
      {"regex", [](ScorerOptions&) {}, "pattern is missing"},
      {"regex", [](ScorerOptions& o) { o.pattern = "("; }, "pattern does not compile"},
      {"regex", [](ScorerOptions& o) { o.pattern = "a", o.match = "full"; }, "match is 'full'"},
      {"length", [](ScorerOptions&) {}, "max_tokens is missing"},
      {"length", [](ScorerOptions& o) { o.max_tokens = 3, o.min_tokens = 4; }, "max_tokens is 3"},
      {"length", [](ScorerOptions& o) { o.max_tokens = 3, o.min_tokens = -1; }, "min_tokens is -1"},
      {"length", [](ScorerOptions& o) { o.max_tokens = 3, o.margin_tokens = -1; },
       "margin_tokens is -1"},
      {"length",
       [](ScorerOptions& o) { o.max_tokens = 3, o.shape = "soft_overlong", o.margin_tokens = 4; },
       "margin_tokens is 4"},
      {"length",
       [](ScorerOptions& o) { o.max_tokens = 3, o.shape = "soft_overlong", o.min_tokens = 1; },
       "min_tokens has no effect"},
      {"grpc", [](ScorerOptions&) {}, "address is missing"},
      {"grpc", [](ScorerOptions& o) { o.address = "a:1", o.timeout_ms = 0; }, "timeout_ms is 0"},
      {"grpc", [](ScorerOptions& o) { o.address = "a:1", o.text = "x"; }, "text has no effect"},
      {"grpc", [](ScorerOptions& o) { o.address = "a:1"; }, "type grpc: this process cannot ask"},
      {"environment", [](ScorerOptions& o) { o.address = "a:1"; }, "address has no effect"},
  };
  for (const auto& c : cases) {
    ScorerOptions options = OptionsOfType(c.type);
    c.change(options);
    const auto scorer = MakeScorer(options);
    EXPECT_EQ(scorer.status().code(), absl::StatusCode::kInvalidArgument) << c.message_start;
    EXPECT_THAT(std::string(scorer.status().message()), StartsWith(c.message_start));
  }
}

TEST(ScorerFactory, NamesTheComponentInACompositeScorer) {
  const auto scorer = MakeCompositeScorer({{"happy", OptionsOfType("contains")}});
  EXPECT_THAT(std::string(scorer.status().message()), StartsWith("happy.text is missing"));
  ScorerOptions heavy = OptionsOfType("exact_match");
  heavy.weight = INFINITY;
  EXPECT_THAT(std::string(MakeCompositeScorer({{"x", heavy}}).status().message()),
              StartsWith("x.weight is inf"));
  EXPECT_FALSE(MakeCompositeScorer({}).ok());
}

TEST(ScorerFactory, AsksTheGivenFactoryForRemoteScorers) {
  std::string asked;
  const RemoteScorerFactory remote =
      [&asked](const std::string& address,
               absl::Duration timeout) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    asked = StrCat(address, " ", absl::FormatDuration(timeout));
    return absl::UnavailableError("no client");
  };
  ScorerOptions options = OptionsOfType("grpc");
  options.address = "host:9000";
  options.timeout_ms = 250;
  EXPECT_EQ(MakeScorer(options, remote).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, "host:9000 250ms");
}

TEST(EnvironmentScorer, PassesOnTheRewardOfTheEpisode) {
  const auto scorer = MustMakeScorer(OptionsOfType("environment"));
  const Attributes none;
  ScoreInput input{"text", 3, true, none, absl::Seconds(1), /*env_reward=*/-1.5};
  EXPECT_EQ(scorer->Score(input)->value, -1.5);
  input.env_reward.reset();
  EXPECT_EQ(scorer->Score(input).status().code(), absl::StatusCode::kFailedPrecondition);
}

absl::StatusOr<Score> ScoreWith(
    const std::vector<std::pair<double, absl::StatusOr<ComponentScore>>>& parts,
    absl::Duration timeout = absl::Seconds(10)) {
  CompositeScorer scorer;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& answer = parts[i].second;
    scorer.Add(StrCat("c", i), parts[i].first,
               std::make_unique<CallbackScorer>([&answer](const ScoreInput&) { return answer; }));
  }
  const Attributes none;
  return scorer.Score(ScoreInput{"", 0, true, none, timeout});
}

TEST(CompositeScorer, SumsWeightedValuesAndKeepsThemByName) {
  const auto score =
      ScoreWith({{0.5, ComponentScore{1}}, {-0.25, ComponentScore{3}}, {0, ComponentScore{7}}});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->reward, -0.25);  // 0.5 * 1 - 0.25 * 3 + 0 * 7
  EXPECT_THAT(
      score->components,
      testing::ElementsAre(testing::Pair("c0", 1), testing::Pair("c1", 3), testing::Pair("c2", 7)));
  EXPECT_EQ(score->outcome, ScoreOutcome::kOk);
}

TEST(CompositeScorer, KeepsThePartsOfAComponentBesideIt) {
  const auto score =
      ScoreWith({{2, ComponentScore{0.75, ScoreOutcome::kOk, {{"digits", 1}, {"length", -0.25}}}},
                 {1, ComponentScore{1}}});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->reward, 2.5);
  EXPECT_THAT(score->components,
              testing::ElementsAre(testing::Pair("c0", 0.75), testing::Pair("c0/digits", 1),
                                   testing::Pair("c0/length", -0.25), testing::Pair("c1", 1)));
}

TEST(CompositeScorer, IsOfWrongFormatWhenAComponentIs) {
  const auto score =
      ScoreWith({{1, ComponentScore{0, ScoreOutcome::kWrongFormat}}, {1, ComponentScore{1}}});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->reward, 1);
  EXPECT_EQ(score->outcome, ScoreOutcome::kWrongFormat);
}

TEST(CompositeScorer, FailsWhenAComponentFails) {
  const auto score = ScoreWith({{1, ComponentScore{1}}, {0, absl::UnavailableError("no host")}});
  EXPECT_EQ(score.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(score.status().message()), "component c1: no host");
}

TEST(CompositeScorer, FailsOnAValueThatIsNotFinite) {
  EXPECT_EQ(ScoreWith({{1, ComponentScore{NAN}}}).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ScoreWith({{1, ComponentScore{INFINITY}}}).status().code(),
            absl::StatusCode::kInternal);
}

TEST(CompositeScorer, FailsWithoutTimeLeft) {
  EXPECT_EQ(ScoreWith({{1, ComponentScore{1}}}, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(CompositeScorer, ScoresTheComponentsOfTheStoriesExample) {
  ScorerOptions name = OptionsOfType("contains");
  name.text = "{name}";
  name.min_count = 3;
  name.weight = 0.5;
  ScorerOptions happy = OptionsOfType("contains");
  happy.text = "happy";
  happy.weight = 0.5;
  const auto scorer = MakeCompositeScorer({{"name", name}, {"happy", happy}});
  ASSERT_TRUE(scorer.ok());
  const Attributes row = {{"name", "Lily"}, {"noun", "girl"}};
  const auto score = (*scorer)->Score(ScoreInput{"Lily was happy. Lily ran.", 9, false, row});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->reward, 0.5);
  EXPECT_EQ(score->components.at("name"), 0);
  EXPECT_EQ(score->components.at("happy"), 1);
}

}  // namespace
}  // namespace freshet
