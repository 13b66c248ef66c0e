// A policy loss must not depend on padding, token order, microbatches, precision, or values at
// masked positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/trainer/loss/loss_evaluation.h"

namespace freshet {
namespace {

// Five sequences of 1 to 6 tokens with random values. Masked tokens hold garbage.
struct RandomBatch {
  std::vector<double> logprobs, proximal, behavior, ref, advantages, mask, entropy;
  std::vector<int64_t> sequence;

  explicit RandomBatch(uint64_t seed, double garbage = 0.5) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    const int64_t lengths[] = {3, 6, 1, 4, 2};
    for (int64_t s = 0; s < 5; ++s) {
      const double advantage = normal(engine);
      for (int64_t t = 0; t < lengths[s]; ++t) {
        const bool loss = lengths[s] < 4 || t != 1;
        const double x = -std::abs(normal(engine));
        Add(s, loss,
            {x, x + 0.3 * normal(engine), x + 0.8 * normal(engine), x + 0.5 * normal(engine),
             advantage, std::abs(normal(engine))},
            garbage);
      }
    }
  }

  void Add(int64_t s, bool loss, const std::vector<double>& values, double garbage) {
    std::vector<double>* columns[] = {&logprobs, &proximal, &behavior, &ref, &advantages, &entropy};
    for (size_t c = 0; c < 6; ++c) {
      columns[c]->push_back(loss ? values[c] : garbage);
    }
    mask.push_back(loss ? 1 : 0);
    sequence.push_back(s);
  }

  LossInputs Inputs(const std::vector<size_t>& order) const {
    const auto pick = [&](const std::vector<double>& column) {
      std::vector<double> picked;
      for (const size_t i : order) {
        picked.push_back(column[i]);
      }
      return Doubles(picked);
    };
    LossInputs in;
    in.logprobs_N = pick(logprobs).set_requires_grad(true);
    in.proximal_logprobs_N = pick(proximal);
    in.behavior_logprobs_N = pick(behavior);
    in.ref_logprobs_N = pick(ref);
    in.advantages_N = pick(advantages);
    in.entropy_N = pick(entropy);
    in.loss_mask_N = pick(mask);
    std::vector<int64_t> index;
    for (const size_t i : order) {
      index.push_back(sequence[i]);
    }
    in.sequence_index_N = at::tensor(index, at::kLong);
    in.num_sequences = 5;
    return in;
  }

  std::vector<size_t> Order() const {
    std::vector<size_t> order(mask.size());
    std::iota(order.begin(), order.end(), size_t{0});
    return order;
  }

  LossNormalizer Normalizer() const {
    return {std::accumulate(mask.begin(), mask.end(), 0.0), 5, 8};
  }
};

// Losses that together use every term and both levels of every reduction.
std::vector<LossSpec> MixedSpecs() {
  std::vector<LossSpec> specs;
  for (const LossPreset& preset : LossPresets()) {
    specs.push_back(*ExpandPreset(preset.name));
    specs.back().kl = {KlKind::kK3, 0.1};
    specs.back().entropy_coef = 0.05;
  }
  specs.push_back(Preset("gspo"));
  specs.back().correction = {CorrectionKind::kSeqTis, 1.5, 0.1};
  specs.push_back(Preset("dr_grpo"));
  specs.back().anchor = AnchorKind::kNone;
  return specs;
}

TEST(PolicyLossInvariance, MicrobatchesAddUpToTheBatch) {
  const RandomBatch batch(7);
  for (const LossSpec& spec : MixedSpecs()) {
    SCOPED_TRACE(DescribeLoss(spec));
    const Evaluation whole = Evaluate(spec, batch.Inputs(batch.Order()), batch.Normalizer());
    double loss = 0, ratio_sum = 0, kl_sum = 0, weight_sum = 0;
    int64_t tokens = 0, clipped = 0, limited = 0;
    std::vector<double> gradient;
    for (const auto& [first, last] : {std::pair{0, 1}, std::pair{2, 2}, std::pair{3, 4}}) {
      std::vector<size_t> part;
      for (const size_t i : batch.Order()) {
        if (batch.sequence[i] >= first && batch.sequence[i] <= last) {
          part.push_back(i);
        }
      }
      LossInputs in = batch.Inputs(part);
      in.sequence_index_N = in.sequence_index_N - first;
      in.num_sequences = last - first + 1;
      const Evaluation result = Evaluate(spec, in, batch.Normalizer());
      loss += result.out.loss_value;
      ratio_sum += result.out.ratio_sum;
      kl_sum += result.out.kl_behavior_sum;
      weight_sum += result.out.correction_weight_sum;
      tokens += result.out.tokens;
      clipped += result.out.clipped_tokens;
      limited += result.out.correction_limited_tokens;
      gradient.insert(gradient.end(), result.gradient.begin(), result.gradient.end());
    }
    EXPECT_NEAR(loss, whole.out.loss_value, 1e-12);
    ExpectNear(gradient, whole.gradient);
    EXPECT_NEAR(ratio_sum, whole.out.ratio_sum, 1e-12);
    EXPECT_NEAR(kl_sum, whole.out.kl_behavior_sum, 1e-12);
    EXPECT_NEAR(weight_sum, whole.out.correction_weight_sum, 1e-12);
    EXPECT_EQ(tokens, whole.out.tokens);
    EXPECT_EQ(clipped, whole.out.clipped_tokens);
    EXPECT_EQ(limited, whole.out.correction_limited_tokens);
  }
}

TEST(PolicyLossInvariance, ASequenceThatCountsTwiceIsAsTwoEqualOnes) {
  RandomBatch counted(7);
  const RandomBatch repeated(7);
  std::vector<size_t> copied = repeated.Order();
  std::erase_if(copied, [&](size_t i) { return repeated.sequence[i] != 1; });
  std::vector<size_t> order = repeated.Order();
  order.insert(order.end(), copied.begin(), copied.end());
  LossNormalizer normalizer = repeated.Normalizer();
  for (const size_t i : copied) {
    normalizer.total_tokens += repeated.mask[i];
    counted.mask[i] *= 2;
  }
  ++normalizer.total_sequences;
  for (const LossSpec& spec : MixedSpecs()) {
    SCOPED_TRACE(DescribeLoss(spec));
    LossInputs in = repeated.Inputs(order);
    for (size_t i = repeated.mask.size(); i < order.size(); ++i) {
      in.sequence_index_N[static_cast<int64_t>(i)] = 5;
    }
    in.num_sequences = 6;
    const Evaluation expected = Evaluate(spec, in, normalizer);
    const Evaluation result = Evaluate(spec, counted.Inputs(counted.Order()), normalizer);
    EXPECT_NEAR(result.out.loss_value, expected.out.loss_value, 1e-12);
    std::vector<double> sum(expected.gradient.begin(),
                            expected.gradient.begin() + std::ssize(repeated.mask));
    for (size_t i = 0; i < copied.size(); ++i) {
      sum[copied[i]] += expected.gradient[repeated.mask.size() + i];
    }
    ExpectNear(result.gradient, sum);
    EXPECT_EQ(result.out.tokens, expected.out.tokens - 5) << "each token once";
  }
}

TEST(PolicyLossInvariance, DoesNotMoveWhenPaddingIsAddedAndTokensArePermuted) {
  const RandomBatch plain(11);
  RandomBatch padded(11);
  for (int64_t i = 0; i < 7; ++i) {
    padded.Add(i % 5, false, {}, i % 2 == 0 ? kNan : 3.0);
  }
  std::vector<size_t> order = padded.Order();
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  for (const LossSpec& spec : MixedSpecs()) {
    SCOPED_TRACE(DescribeLoss(spec));
    const Evaluation expected = Evaluate(spec, plain.Inputs(plain.Order()), plain.Normalizer());
    const Evaluation result = Evaluate(spec, padded.Inputs(order), padded.Normalizer());
    EXPECT_NEAR(result.out.loss_value, expected.out.loss_value, 1e-12);
    EXPECT_NEAR(result.out.kl_ref_sum, expected.out.kl_ref_sum, 1e-12);
    EXPECT_EQ(result.out.clipped_tokens, expected.out.clipped_tokens);
    for (size_t i = 0; i < order.size(); ++i) {
      const double gradient = order[i] < plain.mask.size() ? expected.gradient[order[i]] : 0;
      EXPECT_NEAR(result.gradient[i], gradient, 1e-12);
    }
  }
}

TEST(PolicyLossInvariance, MaskedGarbageReachesNeitherLossNorGradient) {
  const RandomBatch clean(5, 0.0);
  for (const double garbage : {kNan, kInf, -kInf, 1e300}) {
    const RandomBatch dirty(5, garbage);
    for (const LossSpec& spec : MixedSpecs()) {
      SCOPED_TRACE(DescribeLoss(spec));
      const Evaluation expected = Evaluate(spec, clean.Inputs(clean.Order()), clean.Normalizer());
      const LossInputs in = dirty.Inputs(dirty.Order());
      const Evaluation result = Evaluate(spec, in, dirty.Normalizer());
      EXPECT_EQ(result.out.loss_value, expected.out.loss_value);
      EXPECT_EQ(result.gradient, expected.gradient);
      EXPECT_EQ(result.out.kl_behavior_sum, expected.out.kl_behavior_sum);
      EXPECT_EQ(result.out.ratio_sum, expected.out.ratio_sum);
      for (size_t i = 0; i < dirty.mask.size(); ++i) {
        EXPECT_TRUE(dirty.mask[i] == 1 || result.gradient[i] == 0);
      }
    }
  }
}

TEST(PolicyLossInvariance, IsZeroWithoutALossToken) {
  for (const LossSpec& spec : MixedSpecs()) {
    RandomBatch batch(1);
    std::fill(batch.mask.begin(), batch.mask.end(), 0.0);
    const LossInputs in = batch.Inputs(batch.Order());
    const Evaluation result = Evaluate(spec, in, {10, 5, 8});
    EXPECT_EQ(result.out.loss_value, 0);
    EXPECT_EQ(result.gradient, std::vector<double>(batch.mask.size(), 0.0));
    LossInputs empty = batch.Inputs({});
    empty.num_sequences = 0;
    EXPECT_EQ(Evaluate(spec, empty, {10, 5, 8}).out.loss_value, 0);
  }
}

TEST(PolicyLossInvariance, StaysFiniteForExtremeRatios) {
  for (const LossSpec& spec : MixedSpecs()) {
    SCOPED_TRACE(DescribeLoss(spec));
    RandomBatch batch(2);
    for (size_t i = 0; i < batch.mask.size(); ++i) {
      if (batch.mask[i] == 1) {
        batch.proximal[i] = i % 2 == 0 ? -1e4 : 0.0;
        batch.behavior[i] = i % 3 == 0 ? -1e4 : 0.0;
        batch.ref[i] = i % 2 == 0 ? 1e4 : -1e4;
      }
    }
    LossInputs in = batch.Inputs(batch.Order());
    in.logprobs_N = in.logprobs_N.detach().to(at::kFloat).set_requires_grad(true);
    const Evaluation result = Evaluate(spec, in, batch.Normalizer());
    EXPECT_TRUE(std::isfinite(result.out.loss_value));
    for (const double slope : result.gradient) {
      EXPECT_TRUE(std::isfinite(slope));
    }
  }
}

TEST(PolicyLossInvariance, FloatAgreesWithDouble) {
  const RandomBatch batch(13);
  for (const LossSpec& spec : MixedSpecs()) {
    SCOPED_TRACE(DescribeLoss(spec));
    const Evaluation exact = Evaluate(spec, batch.Inputs(batch.Order()), batch.Normalizer());
    LossInputs in = batch.Inputs(batch.Order());
    in.logprobs_N = in.logprobs_N.detach().to(at::kFloat).set_requires_grad(true);
    const Evaluation result = Evaluate(spec, in, batch.Normalizer());
    EXPECT_EQ(result.out.loss.scalar_type(), at::kFloat);
    EXPECT_NEAR(result.out.loss_value, exact.out.loss_value, 1e-5);
  }
}

}  // namespace
}  // namespace freshet
