#include "env_workers/guess_number.h"

#include <set>
#include <string>

#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

// Resets the game and returns the secret, which the answer reveals to tests but not to policies.
int64_t MustReset(GuessNumber& game, uint64_t seed, const EnvironmentOptions& options = {}) {
  const auto reply = game.Reset(seed, options);
  EXPECT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->observation, "");
  return std::stoll(reply->info.at("secret"));
}

EnvironmentReply MustStep(GuessNumber& game, const std::string& action) {
  const auto reply = game.Step(action);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return *reply;
}

TEST(GuessNumber, AnswersWhereTheSecretIs) {
  GuessNumber game;
  uint64_t seed = 0;
  while (MustReset(game, seed) != 5) ++seed;
  EXPECT_EQ(MustStep(game, "2").observation, ">");
  EXPECT_EQ(MustStep(game, "9").observation, "<");
  const EnvironmentReply found = MustStep(game, "5");
  EXPECT_EQ(found.observation, "=");
  EXPECT_EQ(found.reward, 1.0);
  EXPECT_TRUE(found.terminated);
  EXPECT_FALSE(found.truncated);
}

TEST(GuessNumber, WordsAreAnswersToo) {
  GuessNumber game;
  uint64_t seed = 0;
  while (MustReset(game, seed, {{"answers", "words"}}) != 5) ++seed;
  EXPECT_EQ(MustStep(game, "2").observation, "higher\n");
  EXPECT_EQ(MustStep(game, "six").observation, "invalid\n");
  EXPECT_EQ(MustStep(game, "05").observation, "correct\n");
}

TEST(GuessNumber, BinarySearchFindsEverySecretWithTheDefaultGuesses) {
  for (const int64_t max : {2, 3, 7, 8, 10, 100, 1000}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      GuessNumber game;
      MustReset(game, seed, {{"max", StrCat(max)}});
      int64_t begin = 0, end = max;
      EnvironmentReply reply;
      while (!reply.terminated && !reply.truncated) {
        const int64_t middle = begin + (end - begin) / 2;
        reply = MustStep(game, StrCat(middle));
        (reply.observation == ">" ? begin : end) = reply.observation == ">" ? middle + 1 : middle;
      }
      ASSERT_TRUE(reply.terminated) << "max " << max << " seed " << seed;
      EXPECT_EQ(reply.reward, 1.0);
    }
  }
}

TEST(GuessNumber, TheLastWrongGuessTruncates) {
  GuessNumber game;
  const int64_t secret = MustReset(game, 3, {{"guesses", "2"}});
  const std::string wrong = StrCat((secret + 1) % 10);
  EXPECT_FALSE(MustStep(game, wrong).truncated);
  const EnvironmentReply last = MustStep(game, wrong);
  EXPECT_TRUE(last.truncated);
  EXPECT_FALSE(last.terminated);
  EXPECT_EQ(last.reward, 0.0);
  EXPECT_EQ(game.Step("1").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(GuessNumber, WhatIsNoNumberOfTheRangeCostsAGuess) {
  GuessNumber game;
  MustReset(game, 1, {{"guesses", "64"}});
  for (const std::string& action :
       {std::string(), std::string("10"), std::string("-0"), std::string("-1"), std::string("x"),
        std::string(" 3"), std::string("3 "), std::string("99999999999999999999"),
        std::string(1 << 20, '0'), std::string("\0", 1), std::string("\xff")}) {
    const EnvironmentReply reply = MustStep(game, action);
    EXPECT_EQ(reply.observation, "!");
    EXPECT_TRUE(reply.invalid);
    EXPECT_EQ(reply.reward, 0.0);
    EXPECT_FALSE(reply.terminated);
  }
}

TEST(GuessNumber, BitsAddUpToOneWhenTheSecretIsFound) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    GuessNumber game;
    MustReset(game, seed, {{"reward", "bits"}, {"guesses", "10"}});
    double sum = 0;
    EnvironmentReply reply;
    for (int guess = 0; !reply.terminated; ++guess) {
      reply = MustStep(game, StrCat(guess));
      EXPECT_GE(reply.reward, 0.0);
      sum += reply.reward;
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(GuessNumber, ARepeatedGuessEarnsNoBits) {
  GuessNumber game;
  uint64_t seed = 0;
  while (MustReset(game, seed, {{"reward", "bits"}, {"max", "8"}}) != 7) ++seed;
  EXPECT_NEAR(MustStep(game, "3").reward, 1.0 / 3, 1e-12);  // 8 candidates become 4
  EXPECT_EQ(MustStep(game, "3").reward, 0.0);
  EXPECT_EQ(MustStep(game, "1").reward, 0.0);  // already known to be larger
}

TEST(GuessNumber, TheSeedAloneDrawsTheSecret) {
  std::set<int64_t> secrets;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    GuessNumber one, another;
    const int64_t secret = MustReset(one, seed);
    EXPECT_EQ(MustReset(another, seed), secret);
    secrets.insert(secret);
  }
  EXPECT_EQ(secrets.size(), 10U);
  EXPECT_EQ(*secrets.begin(), 0);
  EXPECT_EQ(*secrets.rbegin(), 9);
}

TEST(GuessNumber, NamesABadOption) {
  struct Case {
    EnvironmentOptions options;
    const char* part;
  };
  const Case cases[] = {
      {{{"max", "1"}}, "options.max: '1'"},      {{{"max", "1000000001"}}, "2 to 1000000000"},
      {{{"max", "ten"}}, "options.max"},         {{{"guesses", "0"}}, "options.guesses"},
      {{{"guesses", "65"}}, "1 to 64"},          {{{"reward", "dense"}}, "use sparse or bits"},
      {{{"answers", ""}}, "use chars or words"},
  };
  for (const Case& c : cases) {
    const auto reply = GuessNumber().Reset(0, c.options);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(reply.status().message().find(c.part), absl::string_view::npos) << reply.status();
  }
}

}  // namespace
}  // namespace freshet
