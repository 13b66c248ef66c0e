#include "model/packed_forward.h"

#include <cmath>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"
#include "model/tensor_convert.h"
#include "model/torch_threads.h"
#include "tests/testing/tiny_model.h"

namespace freshet {
namespace {

struct PackedModel {
  const char* name;
  ModelConfig (*config)();
};
void PrintTo(const PackedModel& model, std::ostream* out) { *out << model.name; }

// A small model with gradients.
class PackedForwardTest : public testing::TestWithParam<PackedModel> {
 protected:
  PackedForwardTest() {
    UseOneTorchThread();
    InitializeWeights(layout_, config_.initializer_range, 3, flat_);
    for (const ParameterEntry& entry : layout_.entries) {
      if (entry.shape.size() == 1) Shake(flat_.narrow(0, entry.offset, entry.size));
    }
    flat_.set_requires_grad(true);
  }

  // Makes biases and norms matter.
  static void Shake(const at::Tensor& vector) {
    float* values = vector.mutable_data_ptr<float>();
    for (int64_t i = 0; i < vector.size(0); ++i) {
      values[i] += static_cast<float>(ToUniform(RandomBits(77, static_cast<uint64_t>(i))) - 0.5);
    }
  }

  std::vector<int32_t> Tokens(int64_t count, uint64_t seed) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(RandomBits(seed, static_cast<uint64_t>(i)) % 32));
    }
    return tokens;
  }
  TargetLogprobs Forward(const std::vector<PackTree>& trees, double temperature = 1.0,
                         Entropy entropy = Entropy::kNone) const {
    return PackedForward(model_, ViewWeights(layout_, flat_), PackTrees(trees), temperature,
                         entropy);
  }
  std::vector<float> Logprobs(const std::vector<PackTree>& trees) const {
    return ToFloats(Forward(trees).logprobs_M);
  }
  // Gradient of the sum of log-probs weighted by `weights`.
  at::Tensor Gradient(const std::vector<PackTree>& trees, const std::vector<float>& weights) const {
    return torch::autograd::grad({(Forward(trees).logprobs_M * ToTensor(weights)).sum()},
                                 {flat_})[0];
  }
  static std::vector<float> Numbers(size_t count) {
    std::vector<float> numbers;
    for (size_t i = 0; i < count; ++i) {
      numbers.push_back(static_cast<float>(ToUniform(RandomBits(55, i)) - 0.3));
    }
    return numbers;
  }
  static void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, double bound) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << "target " << i;
  }
  // The trees as plain sequences: prefix and suffix joined for each suffix.
  static std::vector<PackTree> Flattened(const std::vector<PackTree>& trees) {
    std::vector<PackTree> flat;
    for (const PackTree& tree : trees) {
      if (tree.suffixes.empty()) flat.push_back(tree);
      for (const std::vector<int32_t>& suffix : tree.suffixes) {
        PackTree& joined = flat.emplace_back();
        joined.prefix = tree.prefix;
        joined.prefix.insert(joined.prefix.end(), suffix.begin(), suffix.end());
      }
    }
    return flat;
  }
  // Indices of the flattened trees' targets that are also targets of the trees.
  static std::vector<size_t> SuffixTargets(const std::vector<PackTree>& trees) {
    std::vector<size_t> targets;
    size_t next = 0;
    for (const PackTree& tree : trees) {
      const auto all = [&](size_t skip, size_t count) {
        next += skip;
        for (size_t i = 0; i < count; ++i) targets.push_back(next++);
      };
      if (tree.suffixes.empty()) all(0, tree.prefix.size() - 1);
      for (const auto& suffix : tree.suffixes) all(tree.prefix.size() - 1, suffix.size());
    }
    return targets;
  }

  const ModelConfig config_ = GetParam().config();
  const ParameterLayout layout_ = MakeParameterLayout(config_);
  const Transformer model_{config_};
  at::Tensor flat_ = at::zeros({layout_.num_elements}, at::kFloat);
};

TEST_P(PackedForwardTest, AGroupEqualsItsSeparateSequencesInValueAndGradient) {
  const std::vector<PackTree> trees = {{Tokens(9, 1), {Tokens(5, 2), Tokens(1, 3), Tokens(12, 4)}},
                                       {Tokens(1, 5), {Tokens(2, 6), Tokens(2, 7)}},
                                       {Tokens(20, 8), {}},
                                       {Tokens(17, 9), {Tokens(30, 10)}}};
  const std::vector<float> packed = Logprobs(trees);
  const std::vector<size_t> places = SuffixTargets(trees);
  const std::vector<float> numbers = Numbers(packed.size());
  std::vector<float> separate;
  std::vector<float> separate_numbers;
  at::Tensor separate_gradient = at::zeros_like(flat_).detach();
  size_t begin = 0;
  for (const PackTree& sequence : Flattened(trees)) {
    const std::vector<float> logprobs = Logprobs({sequence});
    std::vector<float> weights(logprobs.size(), 0.0F);
    for (size_t m = 0; m < places.size(); ++m) {
      if (places[m] < begin || places[m] >= begin + logprobs.size()) continue;
      separate.push_back(logprobs[places[m] - begin]);
      weights[places[m] - begin] = numbers[m];
    }
    separate_gradient += Gradient({sequence}, weights);
    begin += logprobs.size();
  }
  ExpectNear(packed, separate, 1e-5);
  const at::Tensor gradient = Gradient(trees, numbers);
  const double largest = separate_gradient.abs().max().item<double>();
  EXPECT_GT(largest, 0.01);
  EXPECT_LT((gradient - separate_gradient).abs().max().item<double>(), 1e-5 * largest + 1e-6);
}

TEST_P(PackedForwardTest, ComputingLayersAgainGivesTheSameBits) {
  const PackedBatch batch = PackTrees({{Tokens(5, 1), {Tokens(4, 2), Tokens(3, 3)}}});
  std::vector<at::Tensor> results[2];
  for (const bool recompute : {false, true}) {
    const TargetLogprobs out = PackedForward(model_, ViewWeights(layout_, flat_), batch, 0.8,
                                             Entropy::kDifferentiable, recompute);
    const at::Tensor sum = (out.logprobs_M - 0.1 * out.entropies_M).sum();
    results[recompute ? 1 : 0] = {out.logprobs_M.detach(),
                                  torch::autograd::grad({sum}, {flat_})[0]};
  }
  EXPECT_TRUE(at::equal(results[0][0], results[1][0]));
  EXPECT_TRUE(at::equal(results[0][1], results[1][1]));
}

TEST_P(PackedForwardTest, TheOrderOfTreesAndSuffixesDoesNotMatter) {
  const PackTree a = {Tokens(9, 1), {Tokens(5, 2), Tokens(3, 3)}};
  const PackTree a_swapped = {a.prefix, {a.suffixes[1], a.suffixes[0]}};
  const PackTree b = {Tokens(30, 4), {Tokens(8, 5)}};
  const std::vector<float> ab = Logprobs({a, b});
  const std::vector<float> ba = Logprobs({b, a_swapped});
  std::vector<float> reordered(ba.begin() + 11, ba.end());             // a's second suffix
  reordered.insert(reordered.end(), ba.begin() + 8, ba.begin() + 11);  // a's first: 3 tokens
  reordered.insert(reordered.end(), ba.begin(), ba.begin() + 8);       // b
  ExpectNear(ab, reordered, 1e-5);
}

// A larger tree in the batch pads the prefix and suffix rectangles of a tree.
TEST_P(PackedForwardTest, PaddingDoesNotMatter) {
  const PackTree watched = {Tokens(6, 1), {Tokens(4, 2), Tokens(2, 3)}};
  const std::vector<float> alone = Logprobs({watched});
  for (const int64_t prefix : {1, 6, 7, 60}) {
    for (const int64_t suffix : {1, 4, 50}) {
      const std::vector<float> together =
          Logprobs({watched, {Tokens(prefix, 8), {Tokens(suffix, 9)}}});
      ExpectNear(alone, {together.begin(), together.begin() + 6}, 1e-5);
    }
  }
  const std::vector<float> numbers = Numbers(6);
  std::vector<float> padded_numbers = numbers;
  padded_numbers.resize(6 + 50, 0.0F);
  const at::Tensor expected = Gradient({watched}, numbers);
  const at::Tensor padded = Gradient({watched, {Tokens(60, 8), {Tokens(50, 9)}}}, padded_numbers);
  EXPECT_TRUE(padded.isfinite().all().item<bool>());
  EXPECT_LT((expected - padded).abs().max().item<double>(),
            1e-5 * expected.abs().max().item<double>() + 1e-6);
}

TEST_P(PackedForwardTest, SuffixesDoNotSeeEachOther) {
  const PackTree watched = {Tokens(6, 1), {Tokens(4, 2), Tokens(4, 3)}};
  PackTree changed = watched;
  changed.suffixes[1] = Tokens(4, 77);
  const std::vector<float> before = Logprobs({watched});
  const std::vector<float> after = Logprobs({changed});
  ExpectNear({before.begin(), before.begin() + 4}, {after.begin(), after.begin() + 4}, 1e-6);
  EXPECT_NE(before.back(), after.back());
}

TEST_P(PackedForwardTest, TokensDoNotSeeLaterOnes) {
  std::vector<int32_t> tokens = Tokens(20, 1);
  const std::vector<float> before = Logprobs({{tokens, {}}});
  tokens[15] = (tokens[15] + 1) % 32;
  const std::vector<float> after = Logprobs({{tokens, {}}});
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(before[i], after[i]) << i;
  EXPECT_NE(before[14], after[14]);
}

TEST_P(PackedForwardTest, TheSameBatchGivesTheSameBits) {
  const std::vector<PackTree> trees = {{Tokens(9, 1), {Tokens(5, 2), Tokens(12, 4)}},
                                       {Tokens(20, 8), {}}};
  EXPECT_EQ(Logprobs(trees), Logprobs(trees));
  const std::vector<float> numbers = Numbers(36);
  EXPECT_TRUE(at::equal(Gradient(trees, numbers), Gradient(trees, numbers)));
}

TEST_P(PackedForwardTest, TemperatureDividesTheLogits) {
  const PackTree tree = {Tokens(6, 1), {Tokens(4, 2)}};
  const TargetLogprobs at_one = Forward({tree}, 1.0, Entropy::kValue);
  const TargetLogprobs cold = Forward({tree}, 0.5, Entropy::kValue);
  const TargetLogprobs hot = Forward({tree}, 100.0, Entropy::kValue);
  const double uniform = std::log(32.0);
  for (const float entropy : ToFloats(hot.entropies_M)) EXPECT_NEAR(entropy, uniform, 0.01);
  for (const float logprob : ToFloats(hot.logprobs_M)) EXPECT_NEAR(logprob, -uniform, 0.2);
  EXPECT_LT(cold.entropies_M.sum().item<double>(), at_one.entropies_M.sum().item<double>());
}

TEST_P(PackedForwardTest, EntropyIsThatOfTheTargetsDistribution) {
  // All 32 continuations of one prefix form the whole distribution.
  PackTree tree = {Tokens(6, 1), {}};
  for (int32_t token = 0; token < 32; ++token) tree.suffixes.push_back({token});
  const TargetLogprobs out = Forward({tree}, 0.7, Entropy::kValue);
  double mass = 0;
  double entropy = 0;
  for (const float logprob : ToFloats(out.logprobs_M)) {
    mass += std::exp(logprob);
    entropy -= std::exp(logprob) * logprob;
  }
  EXPECT_NEAR(mass, 1.0, 1e-5);
  for (const float each : ToFloats(out.entropies_M)) EXPECT_NEAR(each, entropy, 1e-5);
}

TEST_P(PackedForwardTest, OnlyDifferentiableEntropyCarriesAGradient) {
  const PackTree tree = {Tokens(6, 1), {Tokens(4, 2)}};
  EXPECT_FALSE(Forward({tree}, 1.0, Entropy::kNone).entropies_M.defined());
  EXPECT_FALSE(Forward({tree}, 1.0, Entropy::kValue).entropies_M.requires_grad());
  const TargetLogprobs out = Forward({tree}, 1.0, Entropy::kDifferentiable);
  const at::Tensor gradient = torch::autograd::grad({out.entropies_M.sum()}, {flat_})[0];
  EXPECT_GT(gradient.abs().max().item<double>(), 0.0);
}

TEST_P(PackedForwardTest, Bf16LogprobsStayCloseToFp32) {
  {
    // Weights of a realistic magnitude, because bf16 rounding is relative to the logits' size.
    const at::NoGradGuard no_grad;
    InitializeWeights(layout_, 0.15, 3, flat_);
  }
  const std::vector<PackTree> trees = {{Tokens(30, 1), {Tokens(25, 2), Tokens(12, 4)}}};
  const TransformerWeights weights = ViewWeights(layout_, flat_);
  const TransformerWeights rounded =
      WidenVectors(ViewWeights(layout_, flat_.detach().to(at::kBFloat16)), weights);
  const PackedBatch batch = PackTrees(trees);
  const at::Tensor exact = PackedForward(model_, weights, batch, 1.0, Entropy::kNone).logprobs_M;
  const at::Tensor bf16 = PackedForward(model_, rounded, batch, 1.0, Entropy::kNone).logprobs_M;
  EXPECT_EQ(bf16.scalar_type(), at::kFloat);
  const double difference = (exact - bf16).abs().mean().item<double>();
  EXPECT_LT(difference, 2e-2);
  EXPECT_GT(difference, 0.0);
  // Gradients flow through the rounding to the fp32 master weights.
  const at::Tensor gradient = torch::autograd::grad({bf16.sum()}, {flat_})[0];
  const at::Tensor expected = torch::autograd::grad({exact.sum()}, {flat_})[0];
  const double alike = (gradient * expected).sum().item<double>() /
                       (gradient.norm() * expected.norm()).item<double>();
  EXPECT_GT(alike, 0.99);
}

INSTANTIATE_TEST_SUITE_P(Models, PackedForwardTest,
                         testing::Values(PackedModel{"Llama", TinyModel},
                                         PackedModel{"EveryPart", TinyMixedModel}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet
