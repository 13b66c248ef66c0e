#include "services/reward/scorers/scorer_factory.h"

#include <cmath>
#include <functional>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/reward_types.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ScorerFactory, NamesTheBadOption) {
  const struct {
    const char* type;
    std::function<void(job::v1::RewardComponent&)> change;
    const char* message_start;
  } cases[] = {
      {"", [](job::v1::RewardComponent&) {}, "type is ''"},
      {"exactmatch", [](job::v1::RewardComponent&) {}, "type is 'exactmatch'; use exact_match"},
      {"contains", [](job::v1::RewardComponent&) {}, "text is missing"},
      {"contains", [](job::v1::RewardComponent& o) { o.set_text(""); }, "text is missing"},
      {"contains", [](job::v1::RewardComponent& o) { o.set_text("a"), o.set_min_count(0); },
       "min_count is 0"},
      {"contains", [](job::v1::RewardComponent& o) { o.set_text("a"), o.set_pattern("b"); },
       "pattern has no effect"},
      {"exact_match", [](job::v1::RewardComponent& o) { o.set_tolerance(1); },
       "tolerance has no effect"},
      {"numeric", [](job::v1::RewardComponent& o) { o.set_place("first"); }, "place is 'first'"},
      {"numeric", [](job::v1::RewardComponent& o) { o.set_tolerance(-1); }, "tolerance is -1"},
      {"numeric", [](job::v1::RewardComponent& o) { o.set_tolerance(NAN); }, "tolerance is nan"},
      {"numeric", [](job::v1::RewardComponent& o) { o.set_ignore_case(true); },
       "ignore_case has no effect"},
      {"numeric", [](job::v1::RewardComponent& o) { o.set_max_calls(1); },
       "max_calls has no effect"},
      {"regex", [](job::v1::RewardComponent&) {}, "pattern is missing"},
      {"regex", [](job::v1::RewardComponent& o) { o.set_pattern("("); },
       "pattern does not compile"},
      {"regex", [](job::v1::RewardComponent& o) { o.set_pattern("a"), o.set_match("full"); },
       "match is 'full'"},
      {"length", [](job::v1::RewardComponent&) {}, "max_tokens is missing"},
      {"length", [](job::v1::RewardComponent& o) { o.set_max_tokens(3), o.set_min_tokens(4); },
       "max_tokens is 3"},
      {"length", [](job::v1::RewardComponent& o) { o.set_max_tokens(3), o.set_min_tokens(-1); },
       "min_tokens is -1"},
      {"length", [](job::v1::RewardComponent& o) { o.set_max_tokens(3), o.set_margin_tokens(-1); },
       "margin_tokens is -1"},
      {"length",
       [](job::v1::RewardComponent& o) {
         o.set_max_tokens(3), o.set_shape("soft_overlong"), o.set_margin_tokens(4);
       },
       "margin_tokens is 4"},
      {"length",
       [](job::v1::RewardComponent& o) {
         o.set_max_tokens(3), o.set_shape("soft_overlong"), o.set_min_tokens(1);
       },
       "min_tokens has no effect"},
      {"length", [](job::v1::RewardComponent& o) { o.set_max_tokens(3), o.set_text("{budget}"); },
       "text has no effect with shape window"},
      {"length", [](job::v1::RewardComponent& o) { o.set_shape("budget"); }, "text is missing"},
      {"length",
       [](job::v1::RewardComponent& o) {
         o.set_shape("budget"), o.set_text("{budget}"), o.set_max_tokens(3);
       },
       "max_tokens has no effect with shape budget"},
      {"grpc", [](job::v1::RewardComponent&) {}, "address is missing"},
      {"grpc", [](job::v1::RewardComponent& o) { o.set_address("a:1"), o.set_timeout_ms(0); },
       "timeout_ms is 0"},
      {"grpc", [](job::v1::RewardComponent& o) { o.set_address("a:1"), o.set_text("x"); },
       "text has no effect"},
      {"grpc", [](job::v1::RewardComponent& o) { o.set_address("a:1"); },
       "type grpc: this process cannot ask"},
      {"math", [](job::v1::RewardComponent& o) { o.set_address("a:1"); }, "address has no effect"},
      {"math", [](job::v1::RewardComponent& o) { o.set_function("f"); }, "function has no effect"},
      {"math", [](job::v1::RewardComponent&) {}, "type math: this process cannot ask"},
      {"python", [](job::v1::RewardComponent&) {}, "function is missing"},
      {"code", [](job::v1::RewardComponent&) {}, "type code: this process cannot ask a sandbox"},
      {"code", [](job::v1::RewardComponent& o) { o.set_function("f"); }, "function has no effect"},
      {"judge", [](job::v1::RewardComponent& o) { o.set_text("{response}"); }, "model is missing"},
      {"judge", [](job::v1::RewardComponent& o) { o.set_model("m"); }, "text is missing"},
      {"judge", [](job::v1::RewardComponent& o) { o.set_model("m"), o.set_text("{prompt}"); },
       "text does not contain {response}"},
      {"judge", [](job::v1::RewardComponent& o) { o.set_model("m"), o.set_text("{response}"); },
       "type judge: this process cannot ask a judge"},
      {"judge",
       [](job::v1::RewardComponent& o) {
         o.set_model("m"), o.set_text("{response}"), o.set_max_score(5);
         (*o.mutable_criteria())["short"] = "is short";
       },
       "max_score has no effect with criteria"},
      {"environment", [](job::v1::RewardComponent& o) { o.set_address("a:1"); },
       "address has no effect"},
  };
  for (const auto& c : cases) {
    job::v1::RewardComponent options = OptionsOfType(c.type);
    c.change(options);
    const auto scorer = MakeScorer(options);
    EXPECT_EQ(scorer.status().code(), absl::StatusCode::kInvalidArgument) << c.message_start;
    EXPECT_THAT(std::string(scorer.status().message()), StartsWith(c.message_start));
  }
}

TEST(ScorerFactory, NamesTheComponentInACompositeScorer) {
  const auto scorer = MakeCompositeScorer(RewardOf({{"happy", OptionsOfType("contains")}}));
  EXPECT_THAT(std::string(scorer.status().message()),
              StartsWith("reward.components.happy.text is missing"));
  job::v1::RewardComponent heavy = OptionsOfType("exact_match");
  heavy.set_weight(INFINITY);
  EXPECT_THAT(std::string(MakeCompositeScorer(RewardOf({{"x", heavy}})).status().message()),
              StartsWith("reward.components.x.weight is inf"));
  EXPECT_THAT(std::string(MakeCompositeScorer({}).status().message()),
              StartsWith("reward.components is empty"));
}

TEST(ScorerFactory, RefusesAConditionThatIsNoOtherComponent) {
  const auto error = [](const char* only_if) {
    job::v1::Reward reward = RewardOf({{"right", OptionsOfType("exact_match")},
                                       {"exact", OptionsOfType("exact_match")},
                                       {"brief", OptionsOfType("exact_match")}});
    (*reward.mutable_components())["exact"].set_only_if("right");
    (*reward.mutable_components())["brief"].set_only_if(only_if);
    return Message(MakeCompositeScorer(reward).status());
  };
  EXPECT_EQ(error("right"), "");
  EXPECT_EQ(error("wrong"),
            "reward.components.brief.only_if must name another component, got 'wrong'");
  EXPECT_EQ(error("brief"),
            "reward.components.brief.only_if must name another component, got 'brief'");
  EXPECT_EQ(
      error("exact"),
      "reward.components.brief.only_if must name a component without only_if; 'exact' has one");
}

TEST(ScorerFactory, AsksTheGivenFactoryForRemoteScorers) {
  std::string asked;
  ServiceScorers remote;
  remote.remote = [&asked](const RemoteReward& reward) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    asked = StrCat("'", reward.address, "' '", reward.function, "' ",
                   absl::FormatDuration(reward.timeout));
    return absl::UnavailableError("no client");
  };
  job::v1::RewardComponent options = OptionsOfType("grpc");
  options.set_address("host:9000");
  options.set_timeout_ms(250);
  EXPECT_EQ(MakeScorer(options, remote).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, "'host:9000' '' 250ms");
  EXPECT_EQ(MakeScorer(OptionsOfType("math"), remote).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, "'' 'math' 1s");
  options = OptionsOfType("python");
  options.set_function("style");
  EXPECT_EQ(MakeScorer(options, remote).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, "'' 'style' 1s");
}

TEST(ScorerFactory, AsksTheGivenFactoriesForHttpScorers) {
  const Attributes row = {{"tests", "assert f"}, {"prompt", "say hi"}};
  const ScoreInput input{"hi", 1, true, row, absl::Seconds(1)};
  std::string asked;
  const auto ask = [&](HttpQuestion question,
                       absl::Duration timeout) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    asked = StrCat(question.path, " ", absl::FormatDuration(timeout), " ",
                   question.bodies(input)->front());
    return absl::UnavailableError("no client");
  };
  ServiceScorers services;
  services.sandbox = ask;
  job::v1::RewardComponent options = OptionsOfType("code");
  options.set_test_timeout_ms(2500);
  EXPECT_EQ(MakeScorer(options, services).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(asked, AllOf(StartsWith("/submit 1s "), HasSubstr("\"assert f\""),
                           HasSubstr("\"python\""), HasSubstr("\"run_timeout\":2.5")));
  services = {};
  services.judge = ask;
  options = OptionsOfType("judge");
  options.set_model("m");
  options.set_text("{prompt}: {response}");
  options.set_timeout_ms(7000);
  EXPECT_EQ(MakeScorer(options, services).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(asked, AllOf(StartsWith("/chat/completions 7s "), HasSubstr("\"say hi: hi\""),
                           HasSubstr("\"maximum\":10")));
}

TEST(ScorerFactory, TellsAScorerWhatItMaySpend) {
  class Budget final : public CallBudget {
    absl::StatusOr<bool> Spend(const std::string&, int64_t) override { return true; }
  } budget;
  std::string told;
  ServiceScorers services;
  services.reward_model = [&](const HttpQuestion&, absl::Duration) {
    return std::make_unique<CallbackScorer>([&](const ScoreInput& input) {
      told += StrCat(input.calls.component, " ", input.calls.max_calls,
                     input.calls.budget == &budget ? "; " : " without budget; ");
      return ComponentScore{1};
    });
  };
  job::v1::RewardComponent options = OptionsOfType("reward_model");
  options.set_model("m");
  job::v1::RewardComponent limited = options;
  limited.set_max_calls(7);
  const auto scorer = MakeCompositeScorer(RewardOf({{"a", options}, {"b", limited}}), services);
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const Attributes none;
  ScoreInput input{"hi", 1, true, none};
  input.calls.budget = &budget;
  EXPECT_TRUE((*scorer)->Score(input).ok());
  EXPECT_EQ(told, "a 0; b 7; ");
}

TEST(EnvironmentScorer, PassesOnTheRewardOfTheEpisode) {
  const auto scorer = MustMakeScorer(OptionsOfType("environment"));
  const Attributes none;
  ScoreInput input{"text", 3, true, none, absl::Seconds(1), /*env_reward=*/-1.5};
  const std::vector<StepReward> steps = {{2, -1.0}, {3, -0.5}};
  input.env_steps = steps;
  EXPECT_EQ(scorer->Score(input)->value, -1.5);
  EXPECT_EQ(scorer->Score(input)->steps, steps);
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

TEST(CompositeScorer, OnlyComponentsOfTheSamplesTaskCount) {
  CompositeScorer scorer;
  const auto one = [](const ScoreInput&) { return ComponentScore{1}; };
  scorer.Add("all", 1, std::make_unique<CallbackScorer>(one));
  scorer.Add("sums", 2, std::make_unique<CallbackScorer>(one), {{"sums", "products"}, ""});
  const auto components = [&scorer](const Attributes& row) {
    std::vector<std::string> names;
    const auto score = scorer.Score(ScoreInput{"", 0, true, row});
    for (const auto& [name, value] : score->components) {
      names.push_back(name);
    }
    return names;
  };
  EXPECT_THAT(components({{"task", "sums"}}), testing::ElementsAre("all", "sums"));
  EXPECT_THAT(components({{"task", "words"}}), testing::ElementsAre("all"));
  EXPECT_THAT(components({}), testing::ElementsAre("all"));
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

TEST(CompositeScorer, WeighsTheStepsOfItsComponents) {
  ComponentScore first{3}, second{1}, logged{5};
  first.steps = {{2, 1}, {5, 2}};
  second.steps = {{2, 4}, {3, -3}};
  logged.steps = {{4, 5}};
  const auto score = ScoreWith({{0.5, first}, {2, second}, {0, logged}});
  ASSERT_TRUE(score.ok());
  EXPECT_THAT(score->step_rewards,
              testing::ElementsAre(StepReward{2, 8.5}, StepReward{3, -6}, StepReward{5, 1}));
}

// `brief`, which fails unless the row has a budget, counts only if `right`.
job::v1::Reward BriefIfRight() {
  job::v1::RewardComponent brief = OptionsOfType("length");
  brief.set_shape("budget");
  brief.set_text("{budget}");
  brief.set_weight(0.5);
  brief.set_only_if("right");
  return RewardOf({{"brief", brief}, {"right", OptionsOfType("exact_match")}});
}

TEST(CompositeScorer, CountsAComponentOnlyIfAnotherIsAboveZero) {
  const auto scorer = MakeCompositeScorer(BriefIfRight());
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const Attributes row = {{"answer", "7"}, {"budget", "4"}};
  const auto right = (*scorer)->Score(ScoreInput{"7", 6, true, row});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->reward, 0.75);  // 1 - 0.5 * 2 / 4
  EXPECT_EQ(right->components.at("brief"), -0.5);
  const auto wrong = (*scorer)->Score(ScoreInput{"8", 6, true, row});
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(wrong->reward, 0);
  EXPECT_THAT(wrong->components,
              testing::ElementsAre(testing::Pair("brief", 0), testing::Pair("right", 0)));
}

TEST(CompositeScorer, DoesNotComputeAComponentThatDoesNotCount) {
  const auto scorer = MakeCompositeScorer(BriefIfRight());
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const Attributes row = {{"answer", "7"}};
  EXPECT_EQ((*scorer)->Score(ScoreInput{"7", 6, true, row}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*scorer)->Score(ScoreInput{"8", 6, true, row}).ok());
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

TEST(CompositeScorer, SaysWhichComponentAlwaysFails) {
  const auto scorer = MakeCompositeScorer(BriefIfRight());
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const auto always_fails = [&](const Attributes& row) {
    const auto score = (*scorer)->Score(ScoreInput{"7", 6, true, row});
    const auto failing = ParseFailingComponent(Message(score.status()));
    return failing.has_value() ? StrCat(failing->name, " ", failing->failures) : "";
  };
  const Attributes right = {{"answer", "7"}};
  for (int i = 0; i < 15; ++i) EXPECT_EQ(always_fails(right), "");
  EXPECT_EQ(always_fails({{"answer", "8"}}), "") << "it is not asked";
  EXPECT_EQ(always_fails(right), "brief 16");
  EXPECT_EQ(always_fails(right), "brief 17");
  EXPECT_EQ(always_fails({{"answer", "7"}, {"budget", "9"}}), "") << "it gives a value";
  EXPECT_EQ(always_fails(right), "");
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
  job::v1::RewardComponent name = OptionsOfType("contains");
  name.set_text("{name}");
  name.set_min_count(3);
  name.set_weight(0.5);
  job::v1::RewardComponent happy = OptionsOfType("contains");
  happy.set_text("happy");
  happy.set_weight(0.5);
  const auto scorer = MakeCompositeScorer(RewardOf({{"name", name}, {"happy", happy}}));
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
