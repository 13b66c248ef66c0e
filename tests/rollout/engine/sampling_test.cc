#include "rollout/engine/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

const double kJustBelowOne = std::nextafter(1.0, 0.0);

SamplingParams Params(double temperature, int32_t top_k = 0, double top_p = 1.0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  return params;
}
SampledToken Sample(const std::vector<float>& logits, const SamplingParams& params, double uniform,
                    const TokenCounts& counts = {}) {
  return SampleToken(logits.data(), static_cast<int64_t>(logits.size()), params, counts, uniform);
}
// Logits whose softmax at temperature 1 is `probabilities`.
std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}
// Fraction of draws per token over evenly spaced random numbers.
std::map<int32_t, double> Shares(const std::vector<float>& logits, const SamplingParams& params) {
  constexpr int kDraws = 10000;
  std::map<int32_t, double> shares;
  for (int i = 0; i < kDraws; ++i) {
    shares[Sample(logits, params, (i + 0.5) / kDraws).id] += 1.0 / kDraws;
  }
  return shares;
}

TEST(SampleToken, GreedyTakesTheLargestWhateverTheNumber) {
  const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 1.9F};
  for (const double u : {0.0, 0.5, kJustBelowOne}) {
    const SampledToken token = Sample(logits, Params(0.0), u);
    EXPECT_EQ(token.id, 1);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    EXPECT_NEAR(token.logprob, 2.0 - std::log(sum), 1e-6);
  }
}

TEST(SampleToken, GreedyBreaksTiesTowardsTheSmallerId) {
  EXPECT_EQ(Sample({1.0F, 3.0F, 3.0F, 3.0F}, Params(0.0), 0.9).id, 1);
}

TEST(SampleToken, GreedyIgnoresTruncation) {
  EXPECT_EQ(Sample({1.0F, 3.0F, 2.0F}, Params(0.0, 2, 0.1), 0.9).id, 1);
}

// An engine refuses such logits, but a bias can leave nothing to draw.
TEST(SampleToken, GivesATokenOfTheVocabularyForAnyLogits) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float logit : {-infinity, infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const SamplingParams& params :
         {Params(0.0), Params(1.0), Params(kMinTemperature), Params(1.0, 5), Params(1.0, 0, 0.5)}) {
      for (const size_t place : {0U, 700U}) {
        std::vector<float> logits(1000, place == 0 ? logit : 0.0F);
        logits[place] = logit;
        const int32_t id = Sample(logits, params, kJustBelowOne).id;
        EXPECT_TRUE(id >= 0 && id < 1000) << id << " for " << logit;
      }
    }
  }
}

TEST(SampleToken, DrawsInProportionToTheProbabilities) {
  const std::map<int32_t, double> shares = Shares(LogitsOf({0.1, 0.2, 0.3, 0.4}), Params(1.0));
  for (const auto& [id, share] : shares) EXPECT_NEAR(share, 0.1 * (id + 1), 2e-4) << id;
}

TEST(SampleToken, TemperatureSharpensAndFlattens) {
  // p^(1/T): at T = 0.5 {1, 4, 9} / 14, at T = 2 {1, sqrt 2, sqrt 3} / sum.
  const std::vector<float> logits = LogitsOf({1.0 / 6, 2.0 / 6, 3.0 / 6});
  EXPECT_NEAR(Shares(logits, Params(0.5))[2], 9.0 / 14.0, 2e-4);
  EXPECT_NEAR(Shares(logits, Params(2.0))[2],
              std::sqrt(3.0) / (1 + std::sqrt(2.0) + std::sqrt(3.0)), 2e-4);
}

TEST(SampleToken, LogprobIsThatOfTheTemperedDistribution) {
  const std::vector<float> logits = LogitsOf({1.0 / 6, 2.0 / 6, 3.0 / 6});
  const SampledToken token = Sample(logits, Params(0.5), 0.99);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(9.0 / 14.0), 1e-6);
}

TEST(SampleToken, TopKKeepsTheLikeliestAndRenormalises) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  const std::map<int32_t, double> shares = Shares(logits, Params(1.0, 2));
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_NEAR(shares.at(1), 0.4 / 0.7, 2e-4);
  EXPECT_NEAR(shares.at(3), 0.3 / 0.7, 2e-4);
  EXPECT_NEAR(Sample(logits, Params(1.0, 2), 0.0).sampling_logprob, std::log(0.4 / 0.7), 1e-6);
}

TEST(SampleToken, TopKOfOneIsCertain) {
  const SampledToken token = Sample(LogitsOf({0.1, 0.4, 0.2, 0.3}), Params(1.0, 1), 0.9);
  EXPECT_EQ(token.id, 1);
  EXPECT_EQ(token.sampling_logprob, 0.0F);
}

TEST(SampleToken, TopKBeyondTheVocabularyChangesNothing) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(Shares(logits, Params(1.0, 4)).size(), 4U);
  EXPECT_EQ(Shares(logits, Params(1.0, 5)).size(), 4U);
}

TEST(SampleToken, TopPKeepsTheSmallestSetThatReachesTheMass) {
  const std::vector<float> logits = LogitsOf({0.5, 0.3, 0.15, 0.05});
  EXPECT_EQ(Shares(logits, Params(1.0, 0, 0.3)).size(), 1U);  // 0.5 >= 0.3
  EXPECT_EQ(Shares(logits, Params(1.0, 0, 0.6)).size(), 2U);  // 0.5 < 0.6 <= 0.8
  EXPECT_EQ(Shares(logits, Params(1.0, 0, 0.9)).size(), 3U);  // 0.8 < 0.9 <= 0.95
  EXPECT_EQ(Shares(logits, Params(1.0, 0, 0.99)).size(), 4U);
  EXPECT_EQ(Shares(logits, Params(1.0, 0, 1e-9)).size(), 1U);
  EXPECT_NEAR(Sample(logits, Params(1.0, 0, 0.6), 0.0).sampling_logprob, std::log(0.5 / 0.8), 1e-6);
}

// A trainer compares it with the log-prob of its own untruncated distribution.
TEST(SampleToken, LogprobKnowsNoCut) {
  const std::vector<double> squares = {1.0 / 26, 16.0 / 26, 9.0 / 26};  // p^2, for T = 0.5
  const std::vector<float> logits = LogitsOf({0.125, 0.5, 0.375});
  for (const SamplingParams& params : {Params(0.5, 2), Params(0.5, 0, 0.9), Params(0.5, 2, 0.5)}) {
    EXPECT_TRUE(params.ChangesDistribution());
    const SampledToken token = Sample(logits, params, 0.0);
    EXPECT_EQ(token.id, 1);
    EXPECT_NEAR(token.logprob, std::log(squares[1]), 1e-6);
    EXPECT_GT(token.sampling_logprob, token.logprob + 1e-2);
  }
}

TEST(SampleToken, BothLogprobsAreOneWhereNothingIsCut) {
  const std::vector<float> logits = LogitsOf({0.1, 0.2, 0.3, 0.4});
  for (const SamplingParams& params : {Params(0.7), Params(0.0), Params(0.0, 2, 0.5)}) {
    EXPECT_FALSE(params.ChangesDistribution());
    const SampledToken token = Sample(logits, params, 0.3);
    EXPECT_EQ(token.logprob, token.sampling_logprob);
  }
}

std::vector<int32_t> Ids(const std::vector<TokenLogprob>& tokens) {
  std::vector<int32_t> ids;
  for (const TokenLogprob& token : tokens) ids.push_back(token.id);
  return ids;
}

TEST(SampleToken, ListsTheLikeliestTokensOfTheModel) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.1, 0.25, 0.15});
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params = Params(temperature);
    params.top_logprobs = 4;
    const SampledToken token = Sample(logits, params, 0.99);
    EXPECT_EQ(Ids(token.top), (std::vector<int32_t>{1, 3, 4, 0})) << "ties: the smaller id first";
    EXPECT_NEAR(token.top[1].logprob, std::log(0.25), 1e-6);
    EXPECT_TRUE(token.sampling_top.empty());
    params.top_logprobs = kMaxTopLogprobs;
    EXPECT_EQ(Sample(logits, params, 0.5).top.size(), logits.size());
  }
}

TEST(SampleToken, ListsTheLikeliestTokensThatCanBeDrawn) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  SamplingParams params = Params(1.0, 2);
  params.top_logprobs = 3;
  const SampledToken cut = Sample(logits, params, 0.0);
  EXPECT_EQ(Ids(cut.top), (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(Ids(cut.sampling_top), (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(cut.sampling_top[0].logprob, std::log(0.4 / 0.7), 1e-6);

  params = Params(0.0);
  params.top_logprobs = 4;
  params.stop_ids = {1};
  params.max_new_tokens = 4;
  params.min_new_tokens = 2;
  const SampledToken adjusted = Sample(logits, params, 0.0);
  EXPECT_EQ(Ids(adjusted.top), (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(Ids(adjusted.sampling_top), (std::vector<int32_t>{3, 2, 0}));
  EXPECT_NEAR(adjusted.sampling_top[0].logprob, std::log(0.3 / 0.6), 1e-6);
}

TEST(SampleToken, TopPCountsTheMassThatTopKLeft) {
  // top_k leaves {0.5, 0.3}, renormalized {0.625, 0.375}; top_p 0.6 of that keeps only the first.
  const std::vector<float> logits = LogitsOf({0.5, 0.3, 0.15, 0.05});
  EXPECT_EQ(Shares(logits, Params(1.0, 2, 0.6)).size(), 1U);
  EXPECT_EQ(Shares(logits, Params(1.0, 2, 0.7)).size(), 2U);
}

TEST(SampleToken, CutsBreakTiesTowardsTheSmallerId) {
  const std::vector<float> logits(6, 1.0F);
  const std::map<int32_t, double> by_k = Shares(logits, Params(1.0, 2));
  EXPECT_EQ(by_k.size(), 2U);
  EXPECT_TRUE(by_k.contains(0) && by_k.contains(1));
  const std::map<int32_t, double> by_p = Shares(logits, Params(1.0, 0, 0.4));
  EXPECT_EQ(by_p.size(), 3U);  // 3 * 1/6 is the first sum >= 0.4
  EXPECT_TRUE(by_p.contains(0) && by_p.contains(1) && by_p.contains(2));
}

TEST(SampleToken, MinPDropsWhatIsFarBelowTheLikeliest) {
  const std::vector<float> logits = LogitsOf({0.5, 0.3, 0.15, 0.05});
  SamplingParams params;
  params.min_p = 0.31;  // of 0.5: 0.155
  EXPECT_EQ(Shares(logits, params).size(), 2U);
  params.min_p = 0.29;
  EXPECT_EQ(Shares(logits, params).size(), 3U);
  EXPECT_NEAR(Sample(logits, params, 0.0).sampling_logprob, std::log(0.5 / 0.95), 1e-6);
  EXPECT_NEAR(Sample(logits, params, 0.0).logprob, std::log(0.5), 1e-6);
}

TEST(SampleToken, PenaltiesFollowTheirDefinitions) {
  const std::vector<float> logits = {2.0F, 1.0F, -1.0F, 1.5F};
  TokenCounts counts;
  counts.prompt = {0};
  for (const int32_t id : {2, 1, 2}) counts.Add(id);
  SamplingParams params = Params(0.0);
  params.repetition_penalty = 2.0;  // 0: 2 / 2, 1: 1 / 2, 2: -1 * 2
  params.presence_penalty = 0.25;   // 1 and 2
  params.frequency_penalty = 0.5;   // 1: once, 2: twice
  const std::vector<float> adjusted = {1.0F, -0.25F, -3.25F, 1.5F};
  const SampledToken token = Sample(logits, params, 0.0, counts);
  EXPECT_EQ(token.id, 3);
  EXPECT_NEAR(token.sampling_logprob, Sample(adjusted, Params(0.0), 0.0).logprob, 1e-6);
  EXPECT_NEAR(token.logprob, 1.5 - 2.0 + Sample(logits, Params(0.0), 0.0).logprob, 1e-6);
}

TEST(SampleToken, BiasAndMinNewTokensComeFirst) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F};
  SamplingParams params = Params(0.0);
  params.logit_bias = {{0, 5.0F}};
  EXPECT_EQ(Sample(logits, params, 0.0).id, 0);
  params.logit_bias.clear();
  params.stop_ids = {2};
  params.min_new_tokens = 2;
  params.max_new_tokens = 4;
  TokenCounts counts;
  counts.Add(0);
  EXPECT_EQ(Sample(logits, params, 0.0, counts).id, 1);
  counts.Add(0);
  EXPECT_EQ(Sample(logits, params, 0.0, counts).id, 2);
}

TEST(SampleToken, ZeroTakesTheFirstTokenThatCanBeDrawn) {
  const float hidden = -std::numeric_limits<float>::infinity();
  const SampledToken token = Sample({hidden, hidden, 0.0F, 0.0F}, Params(1.0), 0.0);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(0.5), 1e-6);
}

// Rounding in the running sum must not select a token with probability 0.
TEST(SampleToken, JustBelowOneNeverTakesAnImpossibleToken) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::vector<float> logits;
    for (uint64_t i = 0; i < 37; ++i) {
      logits.push_back(static_cast<float>(6.0 * ToUniform(RandomBits(seed, i))));
    }
    logits.push_back(-std::numeric_limits<float>::infinity());
    logits.push_back(-1e9F);
    const SampledToken token = Sample(logits, Params(1.0), kJustBelowOne);
    ASSERT_LT(token.id, 37) << "seed " << seed;
    ASSERT_TRUE(std::isfinite(token.logprob)) << "seed " << seed;
  }
}

TEST(SampleToken, SurvivesHugeLogits) {
  const SampledToken token = Sample({1e30F, 3e38F, -3e38F}, Params(1.0), 0.5);
  EXPECT_EQ(token.id, 1);
  EXPECT_EQ(token.logprob, 0.0F);
}

TEST(SampleToken, SameLogitsAndNumberGiveTheSameToken) {
  const std::vector<float> logits = LogitsOf({0.25, 0.25, 0.25, 0.25});
  for (const double u : {0.0, 0.1, 0.26, 0.77, kJustBelowOne}) {
    const SampledToken a = Sample(logits, Params(0.7, 3, 0.9), u);
    const SampledToken b = Sample(logits, Params(0.7, 3, 0.9), u);
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.logprob, b.logprob);
  }
}

TEST(SampleToken, AVocabularyOfOneIsCertain) {
  for (const double t : {0.0, 1.0}) {
    const SampledToken token = Sample({-3.5F}, Params(t), 0.3);
    EXPECT_EQ(token.id, 0);
    EXPECT_EQ(token.logprob, 0.0F);
  }
}

TEST(SamplingParams, NamesTheParameterOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* named;
    void (*damage)(SamplingParams&);
  } cases[] = {
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1; }},
      {"temperature",
       [](SamplingParams& p) { p.temperature = std::numeric_limits<double>::infinity(); }},
      {"top_p", [](SamplingParams& p) { p.top_p = 0.0; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.0001; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"max_new_tokens", [](SamplingParams& p) { p.max_new_tokens = 0; }},
      {"min_p", [](SamplingParams& p) { p.min_p = 1.5; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = -1000; }},
      {"frequency_penalty",
       [](SamplingParams& p) { p.frequency_penalty = std::numeric_limits<double>::quiet_NaN(); }},
      {"min_new_tokens", [](SamplingParams& p) { p.min_new_tokens = 2; }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{0, 1e6F}};
       }},
  };
  EXPECT_TRUE(SamplingParams().Validate().ok());
  for (const auto& c : cases) {
    SamplingParams params;
    c.damage(params);
    const absl::Status status = params.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.named;
    EXPECT_NE(Message(status).find(c.named), std::string::npos) << status;
  }
  SamplingParams params;
  params.temperature = nan;
  EXPECT_FALSE(params.Validate().ok());
  params = {};
  params.top_p = nan;
  EXPECT_FALSE(params.Validate().ok());
}

}  // namespace
}  // namespace freshet
