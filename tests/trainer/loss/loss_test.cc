#include "trainer/loss/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "job/loss_setup.h"
#include "tests/trainer/loss/loss_evaluation.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;

// Three tokens: two of sequence 0 with advantage 1, one of sequence 1 with advantage -1. All
// log-probs of the current policy are -1; those of the other policies follow from the ratios.
struct Golden {
  std::vector<double> ratios{1.5, 0.5, 0.5};  // current / proximal
  std::vector<double> rhos{1, 1, 1};          // proximal / behaviour
  std::vector<double> advantages{1, 1, -1};
  LossNormalizer normalizer{3, 2, 4};
};

LossInputs InputsOf(const Golden& golden) {
  LossInputs in;
  std::vector<double> proximal, behavior;
  for (size_t i = 0; i < 3; ++i) {
    proximal.push_back(-1 - std::log(golden.ratios[i]));
    behavior.push_back(proximal[i] - std::log(golden.rhos[i]));
  }
  in.logprobs_N = Doubles({-1, -1, -1}).set_requires_grad(true);
  in.proximal_logprobs_N = Doubles(proximal);
  in.behavior_logprobs_N = Doubles(behavior);
  in.advantages_N = Doubles(golden.advantages);
  in.loss_mask_N = at::ones({3}, at::kDouble);
  in.sequence_index_N = at::tensor({0, 0, 1}, at::kLong);
  in.num_sequences = 2;
  return in;
}

Evaluation Evaluate(const LossSpec& spec, const Golden& golden = {}) {
  return Evaluate(spec, InputsOf(golden), golden.normalizer);
}

// Token losses at clip 0.2 / 0.2:
//   A = 1, r = 1.5: max(-1.5, -1.2) = -1.2, clipped, so gradient 0
//   A = 1, r = 0.5: max(-0.5, -0.8) = -0.5, gradient -r A = -0.5
//   A = -1, r = 0.5: max(0.5, 0.8) = 0.8, clipped, so gradient 0

TEST(PolicyLoss, GrpoAveragesTokensThenSequences) {
  const Evaluation result = Evaluate(Preset("grpo"));
  EXPECT_NEAR(result.out.loss_value, -0.025, 1e-12);  // ((-1.2 - 0.5) / 2 + 0.8) / 2
  ExpectNear(result.gradient, {0, -0.125, 0});        // -0.5 / (2 * 2)
  EXPECT_EQ(result.out.tokens, 3);
  EXPECT_EQ(result.out.clipped_tokens, 2);
  EXPECT_NEAR(result.out.ratio_sum, 2.5, 1e-12);
  EXPECT_NEAR(result.out.correction_weight_sum, 3, 1e-12);
  EXPECT_EQ(result.out.correction_limited_tokens, 0);
}

// In the first minibatch of a step the ratio is 1 and never clipped, so only the correction
// distinguishes stale samples from fresh ones.
TEST(PolicyLoss, StaleSamplesOfADefaultJobCarryTheirImportanceWeight) {
  Golden golden;
  golden.ratios = {1, 1, 1};
  golden.rhos = {1.5, 0.5, 4};  // of samples one version older
  job::v1::Loss keys;
  const auto gradient = [&](int64_t max_staleness) {
    const auto resolved = ResolveLoss(keys, {2, 1, max_staleness});
    return Evaluate(std::get<LossSpec>(resolved), golden).gradient;
  };
  ExpectNear(gradient(1), {-1.5 / 4, -0.5 / 4, 2.0 / 2});  // the last weight is truncated to 2
  ExpectNear(gradient(0), {-0.25, -0.25, 0.5});
  keys.mutable_correction()->set_kind("none");
  ExpectNear(gradient(1), {-0.25, -0.25, 0.5});
}

TEST(PolicyLoss, DapoAveragesTokensWithAHigherUpperClip) {
  const Evaluation result = Evaluate(Preset("dapo"));
  EXPECT_NEAR(result.out.loss_value, -0.98 / 3, 1e-12);  // (-1.28 - 0.5 + 0.8) / 3
  ExpectNear(result.gradient, {0, -0.5 / 3, 0});
}

TEST(PolicyLoss, DrGrpoDividesSumsByAConstant) {
  const Evaluation result = Evaluate(Preset("dr_grpo"));
  EXPECT_NEAR(result.out.loss_value, -0.1125, 1e-12);  // (-1.2 - 0.5 + 0.8) / (2 * 4)
  ExpectNear(result.gradient, {0, -0.0625, 0});        // -0.5 / 8
}

TEST(PolicyLoss, RlooGradientIsReinforceOnTheFirstMinibatch) {
  Golden golden;
  golden.ratios = {1, 1, 1};
  const Evaluation result = Evaluate(Preset("rloo"), golden);
  EXPECT_NEAR(result.out.loss_value, -0.125, 1e-12);     // (-1 - 1 + 1) / (2 * 4)
  ExpectNear(result.gradient, {-0.125, -0.125, 0.125});  // -A / 8
  LossSpec reinforce = Preset("rloo");
  reinforce.anchor = AnchorKind::kNone;
  const Evaluation plain = Evaluate(reinforce, golden);
  EXPECT_NEAR(plain.out.loss_value, 0.125, 1e-12);  // -A * -1: (1 + 1 - 1) / 8
  ExpectNear(plain.gradient, result.gradient);
  EXPECT_EQ(plain.out.ratio_sum, 3);
  EXPECT_EQ(plain.out.clipped_tokens, 0);
}

TEST(PolicyLoss, ReinforcePpAveragesTokensWithASymmetricClip) {
  EXPECT_NEAR(Evaluate(Preset("reinforce_pp")).out.loss_value, -0.3,
              1e-12);  // (-1.2 - 0.5 + 0.8) / 3
}

TEST(PolicyLoss, GspoClipsTheGeometricMeanOfASequence) {
  const Evaluation result = Evaluate(Preset("gspo"));
  const double s = std::sqrt(0.75);  // (1.5 * 0.5)^(1/2) < 1 - 3e-4; A = 1, so not clipped
  EXPECT_NEAR(result.out.loss_value, (-s + 0.9997) / 2, 1e-12);
  ExpectNear(result.gradient, {-s / 4, -s / 4, 0});  // -A s / (tokens 2 * sequences 2)
  EXPECT_EQ(result.out.clipped_tokens, 1);
}

TEST(PolicyLoss, CispoWeighsLogProbsByTheClippedRatioToBehavior) {
  Golden golden;
  golden.ratios = {1, 1, 1};
  golden.rhos = {3, 0.5, 0.5};  // current / behaviour, as current = proximal
  const Evaluation result = Evaluate(Preset("cispo"), golden);
  // -A clip(r) log p with log p = -1: 1*2, 1*0.5, -1*0.5
  EXPECT_NEAR(result.out.loss_value, 2.0 / 3, 1e-12);
  ExpectNear(result.gradient, {-2.0 / 3, -0.5 / 3, 0.5 / 3});
  EXPECT_EQ(result.out.clipped_tokens, 1);
  EXPECT_NEAR(result.out.ratio_sum, 4, 1e-12);
}

TEST(PolicyLoss, DecoupledPpoLeavesOutLargeWeights) {
  Golden golden;
  golden.rhos = {2, 6, 0.5};
  const Evaluation result = Evaluate(Preset("decoupled_ppo"), golden);
  EXPECT_NEAR(result.out.loss_value, -2.0 / 3, 1e-12);  // (2 * -1.2 + 0 * -0.5 + 0.5 * 0.8) / 3
  ExpectNear(result.gradient, {0, 0, 0});
  EXPECT_NEAR(result.out.correction_weight_sum, 2.5, 1e-12);
  EXPECT_EQ(result.out.correction_limited_tokens, 1);
}

TEST(PolicyLoss, IcePopAlsoLeavesOutSmallWeights) {
  Golden golden;
  golden.rhos = {2, 0.4, 0.51};
  const Evaluation result = Evaluate(Preset("icepop"), golden);
  EXPECT_NEAR(result.out.loss_value, -0.396, 1e-12);  // ((-2.4 + 0) / 2 + 0.51 * 0.8) / 2
  EXPECT_EQ(result.out.correction_limited_tokens, 1);
}

TEST(PolicyLoss, TisTruncatesTheWeightOfEachToken) {
  LossSpec spec = Preset("reinforce_pp");
  spec.correction = {CorrectionKind::kTis, 2.0, 0.0};
  Golden golden;
  golden.rhos = {3, 0.5, 1};
  const Evaluation result = Evaluate(spec, golden);
  EXPECT_NEAR(result.out.loss_value, -1.85 / 3, 1e-12);  // (2 * -1.2 + 0.5 * -0.5 + 0.8) / 3
  ExpectNear(result.gradient, {0, -0.25 / 3, 0});
  EXPECT_NEAR(result.out.correction_weight_sum, 3.5, 1e-12);
  EXPECT_EQ(result.out.correction_limited_tokens, 1);
}

TEST(PolicyLoss, SequenceTisUsesTheProductOfASequence) {
  LossSpec spec = Preset("reinforce_pp");
  spec.correction = {CorrectionKind::kSeqTis, 2.0, 0.0};
  Golden golden;
  golden.rhos = {3, 0.5, 1};                                             // products 1.5 and 1
  EXPECT_NEAR(Evaluate(spec, golden).out.loss_value, -1.75 / 3, 1e-12);  // (-1.8 - 0.75 + 0.8) / 3
  golden.rhos = {3, 1, 1};  // 3 is truncated to 2 for both tokens
  const Evaluation result = Evaluate(spec, golden);
  EXPECT_NEAR(result.out.loss_value, -2.6 / 3, 1e-12);  // (-2.4 - 1.0 + 0.8) / 3
  EXPECT_EQ(result.out.correction_limited_tokens, 2);
}

TEST(PolicyLoss, DualClipBoundsTheLossOfNegativeAdvantages) {
  LossSpec spec = Preset("reinforce_pp");
  spec.clip.dual = 3.0;
  Golden golden;
  golden.ratios = {5, 1, 5};
  const Evaluation result = Evaluate(spec, golden);
  EXPECT_NEAR(result.out.loss_value, 0.8 / 3, 1e-12);  // (-1.2 - 1 + min(5, 3)) / 3
  ExpectNear(result.gradient, {0, -1.0 / 3, 0});
  EXPECT_EQ(result.out.clipped_tokens, 2);
}

TEST(PolicyLoss, KlEstimatesAreSchulmans) {
  // pi_ref = 2 pi_theta at token 0, equal elsewhere; d = log 2.
  const double d = std::log(2.0);
  const struct {
    KlKind kind;
    double value, slope, slope_at_0;  // slopes: derivatives by log pi_theta, at d and at 0
  } cases[] = {
      {KlKind::kK1, -d, 1, 1}, {KlKind::kK2, d * d / 2, -d, 0}, {KlKind::kK3, 1 - d, -1, 0}};
  for (const auto& test : cases) {
    LossSpec spec = Preset("reinforce_pp");
    spec.kl = {test.kind, 0.1};
    Golden golden;
    golden.advantages = {0, 0, 0};
    LossInputs in = InputsOf(golden);
    in.ref_logprobs_N = Doubles({-1 + d, -1, -1});
    const Evaluation result = Evaluate(spec, in, golden.normalizer);
    EXPECT_NEAR(result.out.loss_value, 0.1 * test.value / 3, 1e-12);
    EXPECT_NEAR(result.out.kl_ref_sum, test.value, 1e-12);
    ExpectNear(result.gradient,
               {0.1 * test.slope / 3, 0.1 * test.slope_at_0 / 3, 0.1 * test.slope_at_0 / 3});
  }
}

TEST(PolicyLoss, EntropyLowersTheLoss) {
  LossSpec spec = Preset("grpo");
  spec.entropy_coef = 0.01;
  LossInputs in = InputsOf({});
  in.entropy_N = Doubles({1, 3, 4}).set_requires_grad(true);
  const Evaluation result = Evaluate(spec, in, Golden{}.normalizer);
  EXPECT_NEAR(result.out.loss_value, -0.025 - 0.01 * 3, 1e-12);  // ((1 + 3) / 2 + 4) / 2 = 3
  EXPECT_NEAR(result.out.entropy_sum, 8, 1e-12);
  ExpectNear(Values(in.entropy_N.grad()), {-0.0025, -0.0025, -0.005});
}

TEST(PolicyLoss, ReportsTheDistanceToTheBehaviorPolicy) {
  Golden golden;
  golden.ratios = {2, 1, 1};
  // k3 with r = current / behaviour = 2 at token 0: r - 1 - log r
  EXPECT_NEAR(Evaluate(Preset("grpo"), golden).out.kl_behavior_sum, 1 - std::log(2.0), 1e-12);
}

TEST(PolicyLoss, NamesTheTokenThatIsNotFinite) {
  LossInputs in = InputsOf({});
  in.proximal_logprobs_N = Doubles({-1, -1, kNan});
  const absl::Status status = PolicyLoss(Preset("grpo"), in, {3, 2, 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("proximal_logprobs of token 2 of sequence 1 is nan"));
  in = InputsOf({});
  in.logprobs_N = Doubles({-1, -kInf, -1}).set_requires_grad(true);
  EXPECT_THAT(Message(PolicyLoss(Preset("grpo"), in, {3, 2, 4}).status()),
              HasSubstr("logprobs of token 1 of sequence 0 is -inf"));
}

TEST(PolicyLoss, RefusesInputsThatDoNotFit) {
  const auto refuses = [](const LossSpec& spec, void (*change)(LossInputs&), const char* message,
                          const LossNormalizer& normalizer = {3, 2, 4}) {
    LossInputs in = InputsOf({});
    change(in);
    const absl::Status status = PolicyLoss(spec, in, normalizer).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(message));
  };
  LossSpec kl = Preset("grpo");
  kl.kl = {KlKind::kK3, 0.1};
  const auto keep = [](LossInputs&) {};
  refuses(kl, keep, "ref_logprobs is missing");
  refuses(
      Preset("grpo"), [](LossInputs& in) { in.proximal_logprobs_N = at::Tensor(); },
      "proximal_logprobs is missing");
  refuses(
      Preset("cispo"), [](LossInputs& in) { in.behavior_logprobs_N = at::Tensor(); },
      "behavior_logprobs is missing");
  refuses(
      Preset("grpo"),
      [](LossInputs& in) {
        in.advantages_N = Doubles({1, 2});
      },
      "advantages has 1 dimensions and 2 entries");
  refuses(
      Preset("grpo"),
      [](LossInputs& in) {
        in.loss_mask_N = Doubles({1, 0.5, 1});
      },
      "not a whole number of at least 0");
  refuses(
      Preset("grpo"),
      [](LossInputs& in) {
        in.loss_mask_N = Doubles({1, kInf, 1});
      },
      "not a whole number of at least 0");
  refuses(
      Preset("grpo"), [](LossInputs& in) { in.num_sequences = 1; }, "outside [0, 1)");
  refuses(
      Preset("grpo"),
      [](LossInputs& in) {
        in.sequence_index_N = Doubles({0, 0, 1});
      },
      "must be int64");
  refuses(Preset("dapo"), keep, "total_tokens is 0", {0, 2, 4});
  refuses(Preset("grpo"), keep, "total_sequences is 0", {3, 0, 4});
  refuses(Preset("dr_grpo"), keep, "max_tokens is 0", {3, 2, 0});
}

TEST(SftLoss, IsTheMeanOverTheTokensOfTheBatch) {
  const at::Tensor logprobs = Doubles({-1, -2, kNan, -3}).set_requires_grad(true);
  const auto out = SftLoss(logprobs, Doubles({1, 1, 0, 1}), 6);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_DOUBLE_EQ(out->loss.item<double>(), 1.0);  // (1 + 2 + 3) / 6
  EXPECT_DOUBLE_EQ(out->nll_sum, 6.0);
  EXPECT_EQ(out->tokens, 3);
  out->loss.backward();
  ExpectNear(Values(logprobs.grad()), {-1.0 / 6, -1.0 / 6, 0, -1.0 / 6});
}

TEST(SftLoss, RefusesWhatItCannotAverage) {
  EXPECT_THAT(Message(SftLoss(Doubles({-1, -kInf}), Doubles({1, 1}), 2).status()),
              HasSubstr("logprobs of token 1 is -inf"));
  EXPECT_FALSE(SftLoss(Doubles({-1}), Doubles({1}), 0).ok());
  EXPECT_FALSE(SftLoss(Doubles({-1}), Doubles({1, 1}), 1).ok());
  EXPECT_THAT(Message(SftLoss(Doubles({-1}), Doubles({2}), 1).status()),
              HasSubstr("neither 0 nor 1"));
  EXPECT_FALSE(SftLoss(at::Tensor(), Doubles({1}), 1).ok());
}

TEST(PolicyLossSums, TheDifferenceToTheSamplingPolicyCountsItsTokens) {
  Golden golden;
  golden.ratios = {1.5, 0.6, 0.7};
  golden.rhos = {2, 1, 2};
  const LossOutput all = Evaluate(Preset("grpo"), golden).out;
  EXPECT_NEAR(all.logprob_diff_sum, std::log(3) - std::log(0.6) + std::log(1.4), 1e-12);
  EXPECT_NEAR(all.importance_ratios.sum, 3 + 0.6 + 1.4, 1e-12);
  const auto at_most = [&all](double bound) {
    const auto* found =
        std::find(kImportanceRatioBounds.begin(), kImportanceRatioBounds.end(), bound);
    return all.importance_ratios
        .tokens[static_cast<size_t>(found - kImportanceRatioBounds.begin())];
  };
  EXPECT_EQ(at_most(0.8), 1);
  EXPECT_EQ(at_most(2), 1);
  EXPECT_EQ(at_most(4), 1);
  EXPECT_EQ(at_most(1.01), 0);
  LossInputs masked = InputsOf(golden);
  masked.loss_mask_N = Doubles({0, 1, 1});
  masked.behavior_logprobs_N = Doubles({kNan, -1 - std::log(0.6), -1 - std::log(1.4)});
  const LossOutput some = Evaluate(Preset("grpo"), masked, golden.normalizer).out;
  EXPECT_NEAR(some.logprob_diff_sum, -std::log(0.6) + std::log(1.4), 1e-12);
  EXPECT_NEAR(some.importance_ratios.sum, 0.6 + 1.4, 1e-12);
}

}  // namespace
}  // namespace freshet
