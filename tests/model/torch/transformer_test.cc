#include "model/transformer.h"

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "model/rope.h"
#include "tests/testing/tiny_model.h"

namespace freshet {
namespace {

at::Tensor Initialized(const ParameterLayout& layout, double range, uint64_t seed) {
  at::Tensor flat = at::full({layout.num_elements}, 9.0F, at::kFloat);
  InitializeWeights(layout, range, seed, flat);
  return flat;
}

TEST(ParameterLayout, HoldsEveryExpectedTensorOnceWithoutOverlap) {
  for (const bool tied : {false, true}) {
    ModelConfig config = TinyModel();
    config.tie_word_embeddings = tied;
    const ParameterLayout layout = MakeParameterLayout(config);
    std::set<std::string> expected = {"model.embed_tokens.weight", "model.norm.weight"};
    if (!tied) expected.insert("lm_head.weight");
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      for (const char* name : {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                               "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
        expected.insert(StrCat("model.layers.", i, ".", name, ".weight"));
      }
    }
    ASSERT_EQ(layout.entries.size(), expected.size());
    std::set<std::string> names;
    int64_t end = 0;
    int64_t parameters = 0;
    for (const ParameterEntry& entry : layout.entries) {
      names.insert(entry.name);
      EXPECT_GE(entry.offset, end) << entry.name;
      int64_t size = 1;
      for (const int64_t dim : entry.shape) size *= dim;
      EXPECT_EQ(entry.size, size);
      end = entry.offset + entry.size;
      parameters += size;
    }
    EXPECT_LE(end, layout.num_elements);
    EXPECT_EQ(layout.num_parameters, parameters);
    EXPECT_EQ(names, expected);
    EXPECT_EQ(layout.lm_head.offset == layout.embed.offset, tied);
  }
}

TEST(ParameterLayout, FusedBlocksAreTheirTensorsEndToEnd) {
  const ParameterLayout layout = MakeParameterLayout(TinyModel());
  const auto entry = [&](const std::string& name) {
    for (const ParameterEntry& each : layout.entries) {
      if (each.name == "model.layers.1." + name) return each;
    }
    ADD_FAILURE() << name;
    return ParameterEntry{};
  };
  const ParameterLayout::Layer& layer = layout.layers[1];
  const ParameterEntry q = entry("self_attn.q_proj.weight");
  const ParameterEntry k = entry("self_attn.k_proj.weight");
  const ParameterEntry v = entry("self_attn.v_proj.weight");
  EXPECT_EQ(layer.qkv.offset, q.offset);
  EXPECT_EQ(k.offset, q.offset + q.size);
  EXPECT_EQ(v.offset, k.offset + k.size);
  EXPECT_EQ(layer.qkv.shape, (std::vector<int64_t>{(4 + 2 * 2) * 8, 32}));
  const ParameterEntry gate = entry("mlp.gate_proj.weight");
  EXPECT_EQ(layer.mlps[0].gate_up.offset, gate.offset);
  EXPECT_EQ(entry("mlp.up_proj.weight").offset, gate.offset + gate.size);
}

TEST(InitializeWeights, IsDeterministicAndDependsOnTheSeed) {
  const ParameterLayout layout = MakeParameterLayout(TinyModel());
  EXPECT_TRUE(at::equal(Initialized(layout, 0.02, 1), Initialized(layout, 0.02, 1)));
  EXPECT_FALSE(at::equal(Initialized(layout, 0.02, 1), Initialized(layout, 0.02, 2)));
}

TEST(InitializeWeights, MatricesAreNormalNormsOneAndGapsZero) {
  ModelConfig config = TinyModel();
  config.hidden_size = 36;  // norms of 36 need padding
  config.vocab_size = 200;
  const ParameterLayout layout = MakeParameterLayout(config);
  ASSERT_GT(layout.num_elements, layout.num_parameters);
  const at::Tensor flat = Initialized(layout, 0.05, 1);
  at::Tensor seen = at::zeros({layout.num_elements}, at::kFloat);
  for (const ParameterEntry& entry : layout.entries) {
    const at::Tensor values = flat.narrow(0, entry.offset, entry.size);
    seen.narrow(0, entry.offset, entry.size).fill_(1.0);
    if (entry.shape.size() == 1) {
      EXPECT_TRUE(values.eq(1.0).all().item<bool>()) << entry.name;
      continue;
    }
    const double deviation = 0.05 / std::sqrt(static_cast<double>(entry.size));
    EXPECT_LT(std::abs(values.mean().item<double>()), 5 * deviation) << entry.name;
    EXPECT_NEAR(values.std().item<double>(), 0.05, 5 * deviation) << entry.name;
    EXPECT_GT(values.abs().max().item<double>(), 0.1) << entry.name;
  }
  EXPECT_TRUE(flat.masked_select(seen.eq(0.0)).eq(0.0).all().item<bool>());
}

TEST(InitializeWeights, DoesNotDependOnTheGaps) {
  // Random numbers are counter-based in parameter order, whatever the number of layers.
  ModelConfig larger = TinyModel();
  larger.num_hidden_layers = 3;
  const at::Tensor small = Initialized(MakeParameterLayout(TinyModel()), 0.02, 1);
  const at::Tensor large = Initialized(MakeParameterLayout(larger), 0.02, 1);
  EXPECT_TRUE(at::equal(small.narrow(0, 0, 32 * 32), large.narrow(0, 0, 32 * 32)));
}

TEST(ViewWeights, SharesTheArena) {
  const ParameterLayout layout = MakeParameterLayout(TinyModel());
  const at::Tensor flat = Initialized(layout, 0.02, 1);
  const TransformerWeights weights = ViewWeights(layout, flat);
  flat.zero_();
  EXPECT_EQ(weights.layers[1].mlps[0].down.abs().max().item<double>(), 0.0);
  EXPECT_EQ(weights.lm_head_VH.abs().max().item<double>(), 0.0);
}

TEST(ViewWeights, ATiedHeadIsTheEmbedding) {
  ModelConfig config = TinyModel();
  config.tie_word_embeddings = true;
  const ParameterLayout layout = MakeParameterLayout(config);
  const TransformerWeights weights = ViewWeights(layout, Initialized(layout, 0.02, 1));
  EXPECT_TRUE(weights.lm_head_VH.is_same(weights.embed_VH));
  const TransformerWeights wide = WidenVectors(weights, weights);
  EXPECT_TRUE(wide.lm_head_VH.is_same(wide.embed_VH));
}

TEST(WidenVectors, OnlyMatricesAreBf16AndAllGradientsPassAsTheyAre) {
  const ParameterLayout layout = MakeParameterLayout(TinyMixedModel());
  const at::Tensor numbers = at::linspace(-2, 3, layout.num_elements, at::kFloat);
  const at::Tensor flat = numbers.clone().set_requires_grad(true);
  const at::Tensor rounded = numbers.to(at::kBFloat16);
  TransformerWeights views = ViewWeights(layout, rounded);
  std::map<std::string, at::Tensor> expected;
  ForEachTensor(
      views, [&](const std::string& name, const at::Tensor& tensor) { expected[name] = tensor; });
  TransformerWeights wide = WidenVectors(views, ViewWeights(layout, flat));
  int fp32 = 0;
  ForEachTensor(wide, [&](const std::string& name, const at::Tensor& tensor) {
    const bool matrix = tensor.dim() == 2 && !name.ends_with(".router");
    EXPECT_EQ(tensor.scalar_type(), matrix ? at::kBFloat16 : at::kFloat) << name;
    EXPECT_TRUE(at::equal(tensor.to(at::kBFloat16), expected[name])) << name;
    EXPECT_EQ(tensor.const_data_ptr() == expected[name].const_data_ptr(), matrix) << name;
    fp32 += matrix ? 0 : 1;
  });
  EXPECT_GT(fp32, 10);
  const at::Tensor slope = at::linspace(1, 1.001, wide.norm_H.numel(), at::kFloat);
  const at::Tensor gradient =
      torch::autograd::grad({(wide.norm_H * slope).sum() + wide.layers[0].o.sum()}, {flat})[0];
  EXPECT_TRUE(at::equal(ViewWeights(layout, gradient).norm_H, slope));
  EXPECT_EQ(ViewWeights(layout, gradient).layers[0].o.min().item<float>(), 1.0F);
}

TEST(RopeInverseFrequencies, FallFromOneByPowersOfTheta) {
  ModelConfig config = TinyModel();
  config.rope_theta = 10000.0;
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  ASSERT_EQ(frequencies.size(), 4U);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(frequencies[static_cast<size_t>(i)], std::pow(10.0, -i), 1e-12);
}

TEST(RopeInverseFrequencies, LinearScalingDividesAll) {
  ModelConfig config = TinyModel();
  const std::vector<double> plain = RopeInverseFrequencies(config);
  config.rope_scaling.kind = RopeScaling::Kind::kLinear;
  config.rope_scaling.factor = 4.0;
  const std::vector<double> scaled = RopeInverseFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4.0);
}

TEST(RopeInverseFrequencies, Llama3KeepsHighDividesLowAndInterpolatesBetween) {
  ModelConfig config = TinyModel();
  config.head_dim = 64;
  config.rope_theta = 500000.0;
  const std::vector<double> plain = RopeInverseFrequencies(config);
  config.rope_scaling = {RopeScaling::Kind::kLlama3, 8.0, 1.0, 4.0, 64};
  const std::vector<double> scaled = RopeInverseFrequencies(config);
  int kept = 0;
  int divided = 0;
  int between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2.0 * M_PI / plain[i];
    if (wavelength < 16.0) {  // 64 / 4
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 64.0) {  // 64 / 1
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8.0);
      ++divided;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8.0);
      ++between;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(between, 0);
}

}  // namespace
}  // namespace freshet
