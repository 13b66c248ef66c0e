#include "model/transformer.h"

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "model/layer_ops.h"
#include "model/rope.h"

namespace freshet {
namespace {

at::Tensor ViewBlock(const ParameterBlock& block, const at::Tensor& flat) {
  int64_t size = 1;
  for (const int64_t dim : block.shape) size *= dim;
  return flat.narrow(0, block.offset, size).view(block.shape);
}

// fp32 input and output; multiplies in the matrix's type.
at::Tensor Multiply(const at::Tensor& x, const at::Tensor& matrix) {
  return at::linear(x.to(matrix.scalar_type()), matrix).to(at::kFloat);
}

}  // namespace

TransformerWeights ViewWeights(const ParameterLayout& layout, const at::Tensor& flat) {
  TransformerWeights weights;
  weights.embed_VH = ViewBlock(layout.embed, flat);
  for (const ParameterLayout::Layer& layer : layout.layers) {
    weights.layers.push_back({ViewBlock(layer.input_norm, flat), ViewBlock(layer.qkv, flat),
                              ViewBlock(layer.o, flat), ViewBlock(layer.post_norm, flat),
                              ViewBlock(layer.gate_up, flat), ViewBlock(layer.down, flat)});
  }
  weights.norm_H = ViewBlock(layout.norm, flat);
  weights.lm_head_VH = layout.lm_head.offset == layout.embed.offset
                           ? weights.embed_VH
                           : ViewBlock(layout.lm_head, flat);
  return weights;
}

TransformerWeights CastWeights(const TransformerWeights& weights, at::ScalarType dtype) {
  if (dtype == at::kFloat) return weights;
  TransformerWeights cast;
  const bool tied = weights.lm_head_VH.is_same(weights.embed_VH);
  cast.embed_VH = weights.embed_VH.to(dtype);
  for (const TransformerWeights::Layer& layer : weights.layers) {
    cast.layers.push_back({layer.input_norm_H, layer.qkv.to(dtype), layer.o.to(dtype),
                           layer.post_norm_H, layer.gate_up.to(dtype), layer.down.to(dtype)});
  }
  cast.norm_H = weights.norm_H;
  cast.lm_head_VH = tied ? cast.embed_VH : weights.lm_head_VH.to(dtype);
  return cast;
}

void InitializeWeights(const ParameterLayout& layout, double initializer_range, uint64_t seed,
                       const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  flat.zero_();
  float* data = flat.mutable_data_ptr<float>();
  uint64_t index = 0;
  for (const ParameterEntry& entry : layout.entries) {
    for (int64_t i = 0; i < entry.size; ++i, ++index) {
      if (entry.shape.size() == 1) {
        data[entry.offset + i] = 1.0F;
        continue;
      }
      // Box-Muller: u1 in (0, 1].
      const double u1 = 1.0 - ToUniform(RandomBits(seed, index, 0));
      const double u2 = ToUniform(RandomBits(seed, index, 1));
      const double normal = std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
      data[entry.offset + i] = static_cast<float>(initializer_range * normal);
    }
  }
}

Transformer::Transformer(const ModelConfig& config) : config_(config) {
  const std::vector<double> inverse = RopeInverseFrequencies(config);
  const int64_t half = config.head_dim / 2;
  cos_TD_ = at::empty({config.max_position_embeddings, half}, at::kFloat);
  sin_TD_ = at::empty({config.max_position_embeddings, half}, at::kFloat);
  float* cos = cos_TD_.mutable_data_ptr<float>();
  float* sin = sin_TD_.mutable_data_ptr<float>();
  for (int64_t t = 0; t < config.max_position_embeddings; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      // Compute the angle in fp32, like the reference.
      const float angle =
          static_cast<float>(t) * static_cast<float>(inverse[static_cast<size_t>(i)]);
      cos[t * half + i] = std::cos(angle);
      sin[t * half + i] = std::sin(angle);
    }
  }
}

at::Tensor Transformer::Forward(const TransformerWeights& weights, const at::Tensor& token_ids_N,
                                const at::Tensor& positions_N, const AttentionFn& attention) const {
  const int64_t heads = config_.num_attention_heads;
  const int64_t kv_heads = config_.num_key_value_heads;
  const int64_t dim = config_.head_dim;
  const int64_t num_tokens = token_ids_N.size(0);
  at::Tensor x = at::embedding(weights.embed_VH, token_ids_N).to(at::kFloat);
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const TransformerWeights::Layer& layer = weights.layers[l];
    const at::Tensor h = RmsNorm(x, layer.input_norm_H, config_.rms_norm_eps);
    const at::Tensor qkv = Multiply(h, layer.qkv).view({num_tokens, heads + 2 * kv_heads, dim});
    // Rotate q and k together; they are adjacent.
    const at::Tensor qk = Rope(qkv.narrow(1, 0, heads + kv_heads), cos_TD_, sin_TD_, positions_N);
    const at::Tensor mixed =
        attention(static_cast<int64_t>(l), qk.narrow(1, 0, heads), qk.narrow(1, heads, kv_heads),
                  qkv.narrow(1, heads + kv_heads, kv_heads));
    x = x + Multiply(mixed, layer.o);
    const at::Tensor g = RmsNorm(x, layer.post_norm_H, config_.rms_norm_eps);
    x = x + Multiply(SwiGlu(Multiply(g, layer.gate_up)), layer.down);
  }
  return RmsNorm(x, weights.norm_H, config_.rms_norm_eps);
}

at::Tensor Transformer::Logits(const TransformerWeights& weights, const at::Tensor& hidden) {
  return Multiply(hidden, weights.lm_head_VH);
}

}  // namespace freshet
