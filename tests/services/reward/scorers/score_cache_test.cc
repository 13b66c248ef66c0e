#include "services/reward/scorers/score_cache.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

const Attributes& NoAttributes() {
  static const Attributes& none = *new Attributes();
  return none;
}

ScoreKey KeyOf(std::string_view rule, std::string_view completion,
               const Attributes& attributes = NoAttributes()) {
  return MakeScoreKey(rule, ScoreInput{completion, 1, true, attributes, absl::Seconds(1)});
}

Score ScoreOf(double reward) {
  Score score;
  score.reward = reward;
  return score;
}

TEST(ScoreKey, DependsOnEverythingButTheTimeout) {
  const Attributes a = {{"answer", "1"}};
  const ScoreInput base{"text", 4, true, a, absl::Seconds(1)};
  const ScoreKey key = MakeScoreKey("rule", base);
  const auto changed = [&base](const std::function<void(ScoreInput&)>& change) {
    ScoreInput other = base;
    change(other);
    return MakeScoreKey("rule", other);
  };
  EXPECT_EQ(changed([](ScoreInput& input) { input.timeout = absl::Seconds(2); }), key);
  EXPECT_NE(MakeScoreKey("rule2", base), key);
  EXPECT_NE(changed([](ScoreInput& input) { input.completion = "texT"; }), key);
  EXPECT_NE(changed([](ScoreInput& input) { input.completion_tokens = 5; }), key);
  EXPECT_NE(changed([](ScoreInput& input) { input.finished = false; }), key);
  EXPECT_NE(changed([](ScoreInput& input) { input.env_reward = 0.0; }), key);
  static const std::vector<StepReward> steps = {{1, 0.5}};
  static const std::vector<std::string> group = {"a", "b"};
  EXPECT_NE(changed([](ScoreInput& input) { input.env_steps = steps; }), key);
  const auto in_group = [&](int32_t index) {
    return changed([index](ScoreInput& input) {
      input.group = group;
      input.index = index;
    });
  };
  EXPECT_NE(in_group(0), key);
  EXPECT_NE(in_group(0), in_group(1));
  const Attributes b = {{"answer", "2"}};
  EXPECT_NE(MakeScoreKey("rule", ScoreInput{"text", 4, true, b, absl::Seconds(1)}), key);
}

TEST(ScoreKey, TellsWhereOneTextEndsAndTheNextBegins) {
  EXPECT_NE(KeyOf("ab", "c"), KeyOf("a", "bc"));
  EXPECT_NE(KeyOf("r", "x", {{"a", "bc"}}), KeyOf("r", "x", {{"ab", "c"}}));
  EXPECT_NE(KeyOf("r", "x", {{"a", ""}, {"b", ""}}), KeyOf("r", "x", {{"a", "b"}}));
}

TEST(ScoreCache, GivesBackWhatWasPut) {
  ScoreCache cache(10);
  EXPECT_FALSE(cache.Get(KeyOf("r", "a")).has_value());
  cache.Put(KeyOf("r", "a"), ScoreOf(0.5));
  ASSERT_TRUE(cache.Get(KeyOf("r", "a")).has_value());
  EXPECT_EQ(cache.Get(KeyOf("r", "a"))->reward, 0.5);
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_EQ(cache.misses(), 1);
}

TEST(ScoreCache, ForgetsTheLeastRecentlyUsed) {
  ScoreCache cache(2);
  cache.Put(KeyOf("r", "a"), ScoreOf(1));
  cache.Put(KeyOf("r", "b"), ScoreOf(2));
  ASSERT_TRUE(cache.Get(KeyOf("r", "a")).has_value());
  cache.Put(KeyOf("r", "c"), ScoreOf(3));
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_TRUE(cache.Get(KeyOf("r", "a")).has_value());
  EXPECT_FALSE(cache.Get(KeyOf("r", "b")).has_value());
  cache.Put(KeyOf("r", "a"), ScoreOf(4));  // replaces the entry
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.Get(KeyOf("r", "a"))->reward, 4);
}

TEST(ScoreCache, WithoutCapacityItKeepsNothing) {
  ScoreCache cache(0);
  cache.Put(KeyOf("r", "a"), ScoreOf(1));
  EXPECT_EQ(cache.size(), 0U);
}

TEST(ScoreCache, MayBeUsedByManyThreads) {
  ScoreCache cache(16);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&cache, t] {
        for (int i = 0; i < 500; ++i) {
          const ScoreKey key = KeyOf("r", StrCat((i * (t + 1)) % 40));
          if (!cache.Get(key).has_value()) cache.Put(key, ScoreOf(i));
        }
      });
    }
  }
  EXPECT_EQ(cache.hits() + cache.misses(), 2000);
  EXPECT_EQ(cache.size(), 16U);
}

std::unique_ptr<Scorer> CountingScorer(int& calls) {
  return std::make_unique<CallbackScorer>(
      [&calls](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
        ++calls;
        if (input.completion == "fails") return absl::UnavailableError("down");
        return ComponentScore{0.25, ScoreOutcome::kWrongFormat, {{"part", 0.5}}};
      });
}

TEST(CachingScorer, AsksOnceForTheSameInput) {
  int calls = 0;
  const CachingScorer scorer("r", CountingScorer(calls), std::make_shared<ScoreCache>(10));
  for (int i = 0; i < 3; ++i) {
    const auto score = ScoreText(scorer, "a");
    ASSERT_TRUE(score.ok());
    EXPECT_EQ(score->value, 0.25);
    EXPECT_EQ(score->outcome, ScoreOutcome::kWrongFormat);
    EXPECT_EQ(score->parts.at("part"), 0.5);
  }
  EXPECT_EQ(calls, 1);
}

TEST(CachingScorer, AFailureIsTriedAgain) {
  int calls = 0;
  const CachingScorer scorer("r", CountingScorer(calls), std::make_shared<ScoreCache>(10));
  EXPECT_FALSE(ScoreText(scorer, "fails").ok());
  EXPECT_FALSE(ScoreText(scorer, "fails").ok());
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace freshet
