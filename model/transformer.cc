#include "model/transformer.h"

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "base/str_cat.h"
#include "model/layer_ops.h"
#include "model/recompute.h"
#include "model/rope.h"

namespace freshet {
namespace {

// In the matrix's type.
at::Tensor Product(const at::Tensor& x, const at::Tensor& matrix) {
  return at::linear(x.to(matrix.scalar_type()), matrix);
}

// fp32, or on a GPU without bias the matrix's type, which saves a conversion. `bias` may be
// undefined.
at::Tensor Multiply(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias = {}) {
  const at::Tensor product = Product(x, matrix);
  if (bias.defined()) return product + bias;  // fp32
  return product.is_cpu() ? product.to(at::kFloat) : product;
}

// The value of `rounded` with the gradient of `master`, which is fp32.
class RoundedFunction : public torch::autograd::Function<RoundedFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor&,
                            const at::Tensor& rounded) {
    return rounded.detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               const torch::autograd::tensor_list& grads) {
    return {grads[0].to(at::kFloat), at::Tensor()};
  }
};

// fp32 numbers that `type` holds, or on a GPU in that type.
at::Tensor RoundTo(const at::Tensor& x, at::ScalarType type) {
  const at::Tensor rounded = x.to(type);
  return x.is_cpu() ? rounded.to(at::kFloat) : rounded;
}

at::Tensor ApplyMlp(const TransformerWeights::Mlp& mlp, const at::Tensor& x) {
  const at::Tensor gate_up = mlp.gate_up_bias.defined() ? Multiply(x, mlp.gate_up, mlp.gate_up_bias)
                                                        : Product(x, mlp.gate_up);
  return Multiply(SwiGlu(gate_up), mlp.down, mlp.down_bias);
}

// Sends every token to the experts with the highest router probability (Qwen3-MoE; Shazeer et al.
// 2017, section 2.1) and adds their weighted outputs in the order of the experts.
at::Tensor ApplyExperts(const TransformerWeights::Layer& layer, const ModelConfig& config,
                        const at::Tensor& x) {
  const at::Tensor probabilities = at::softmax(Multiply(x, layer.router), -1);
  auto [chosen, experts] = at::topk(probabilities, config.num_experts_per_tok, -1);
  if (config.norm_topk_prob) chosen = chosen / chosen.sum(-1, /*keepdim=*/true);
  // [N, experts]; 0 where not chosen.
  const at::Tensor weights = at::zeros_like(probabilities).scatter(-1, experts, chosen);
  const at::Tensor used = at::zeros_like(probabilities, at::kBool).scatter(-1, experts, true);
  at::Tensor out = at::zeros_like(x);
  for (size_t e = 0; e < layer.mlps.size(); ++e) {
    const auto expert = static_cast<int64_t>(e);
    const at::Tensor rows = at::nonzero(used.select(1, expert)).view({-1});
    const int64_t count = rows.size(0);
    if (count == 0) continue;
    const int64_t padded = PadRows(count);
    const at::Tensor gathered =
        at::constant_pad_nd(x.index_select(0, rows), {0, 0, 0, padded - count});
    const at::Tensor share = weights.select(1, expert).index_select(0, rows).unsqueeze(1);
    out.index_add_(0, rows, ApplyMlp(layer.mlps[e], gathered).narrow(0, 0, count) * share);
  }
  return out;
}

// Normalizes every head of x [N, heads, D].
at::Tensor NormalizeHeads(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  return RmsNorm(x.to(at::kFloat).reshape({-1, x.size(2)}), weight_D, eps).view(x.sizes());
}

}  // namespace

at::Tensor ViewBlock(const ParameterBlock& block, const at::Tensor& flat, int64_t begin) {
  if (block.shape.empty()) return {};
  int64_t size = 1;
  for (const int64_t dim : block.shape) size *= dim;
  return flat.narrow(0, block.offset - begin, size).view(block.shape);
}

TransformerWeights::Layer ViewLayer(const ParameterLayout::Layer& layer, const at::Tensor& flat,
                                    int64_t begin) {
  const auto view = [&](const ParameterBlock& block) { return ViewBlock(block, flat, begin); };
  TransformerWeights::Layer views = {view(layer.input_norm), view(layer.qkv),
                                     view(layer.qkv_bias),   view(layer.q_norm),
                                     view(layer.k_norm),     view(layer.o),
                                     view(layer.o_bias),     view(layer.post_norm),
                                     view(layer.router),     {}};
  for (const ParameterLayout::Mlp& mlp : layer.mlps) {
    views.mlps.push_back(
        {view(mlp.gate_up), view(mlp.gate_up_bias), view(mlp.down), view(mlp.down_bias)});
  }
  return views;
}

TransformerWeights ViewWeights(const ParameterLayout& layout, const at::Tensor& flat) {
  TransformerWeights weights;
  weights.embed_VH = ViewBlock(layout.embed, flat, 0);
  for (const ParameterLayout::Layer& layer : layout.layers) {
    weights.layers.push_back(ViewLayer(layer, flat, 0));
  }
  weights.norm_H = ViewBlock(layout.norm, flat, 0);
  weights.lm_head_VH = layout.lm_head.offset == layout.embed.offset
                           ? weights.embed_VH
                           : ViewBlock(layout.lm_head, flat, 0);
  return weights;
}

TransformerWeights SeparateHead(TransformerWeights weights) {
  if (weights.lm_head_VH.is_same(weights.embed_VH)) {
    weights.lm_head_VH = weights.embed_VH.detach();
  }
  return weights;
}

void ForEachTensor(TransformerWeights& weights, const TensorVisitor& visit) {
  const bool tied = weights.lm_head_VH.is_same(weights.embed_VH);
  visit("embed", weights.embed_VH);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    ForEachTensor(weights.layers[i], StrCat("layers.", i, "."), visit);
  }
  visit("norm", weights.norm_H);
  if (tied) {
    weights.lm_head_VH = weights.embed_VH;
  } else {
    visit("lm_head", weights.lm_head_VH);
  }
}

void ForEachTensor(TransformerWeights::Layer& layer, const std::string& prefix,
                   const TensorVisitor& visit) {
  const auto visit_defined = [&](const std::string& name, at::Tensor& tensor) {
    if (tensor.defined()) visit(name, tensor);
  };
  visit_defined(prefix + "input_norm", layer.input_norm_H);
  visit_defined(prefix + "qkv", layer.qkv);
  visit_defined(prefix + "qkv_bias", layer.qkv_bias);
  visit_defined(prefix + "q_norm", layer.q_norm_D);
  visit_defined(prefix + "k_norm", layer.k_norm_D);
  visit_defined(prefix + "o", layer.o);
  visit_defined(prefix + "o_bias", layer.o_bias);
  visit_defined(prefix + "post_norm", layer.post_norm_H);
  visit_defined(prefix + "router", layer.router);
  for (size_t e = 0; e < layer.mlps.size(); ++e) {
    TransformerWeights::Mlp& mlp = layer.mlps[e];
    const std::string expert = layer.router.defined() ? StrCat(prefix, "experts.", e, ".") : prefix;
    visit_defined(expert + "gate_up", mlp.gate_up);
    visit_defined(expert + "gate_up_bias", mlp.gate_up_bias);
    visit_defined(expert + "down", mlp.down);
    visit_defined(expert + "down_bias", mlp.down_bias);
  }
}

TransformerWeights WidenVectors(const TransformerWeights& weights) {
  TransformerWeights wide = weights;
  for (TransformerWeights::Layer& layer : wide.layers) WidenVectors(layer);
  wide.norm_H = wide.norm_H.to(at::kFloat);
  if (wide.lm_head_VH.size(0) == 1) wide.lm_head_VH = wide.lm_head_VH.to(at::kFloat);
  return wide;
}

void WidenVectors(TransformerWeights::Layer& layer) {
  ForEachTensor(layer, "", [](const std::string& name, at::Tensor& tensor) {
    if (tensor.dim() != 2 || name == "router") tensor = tensor.to(at::kFloat);
  });
}

TransformerWeights WidenVectors(const TransformerWeights& weights,
                                const TransformerWeights& masters) {
  TransformerWeights wide = WidenVectors(weights);
  TransformerWeights leaves = masters;  // of the tensors' handles
  std::vector<at::Tensor> in_order;
  ForEachTensor(leaves,
                [&](const std::string&, const at::Tensor& leaf) { in_order.push_back(leaf); });
  size_t next = 0;
  ForEachTensor(wide, [&](const std::string&, at::Tensor& tensor) {
    tensor = RoundedFunction::apply(in_order[next++], tensor);
  });
  return wide;
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
        data[entry.offset + i] = entry.name.ends_with(".bias") ? 0.0F : 1.0F;
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

Transformer::Transformer(const ModelConfig& config, at::Device device) : config_(config) {
  const RopeTables tables = MakeRopeTables(config);
  const auto tensor = [&](const std::vector<float>& table) {
    return at::tensor(table, at::kFloat).view({config.max_position_embeddings, -1}).to(device);
  };
  cos_TD_ = tensor(tables.cos);
  sin_TD_ = tensor(tables.sin);
}

at::Tensor Transformer::Forward(const TransformerWeights& weights, const at::Tensor& token_ids_N,
                                const at::Tensor& positions_N, const AttentionFn& attention,
                                bool recompute) const {
  at::Tensor x = Embed(weights.embed_VH, token_ids_N);
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const auto index = static_cast<int64_t>(l);
    const TransformerWeights::Layer& layer = weights.layers[l];
    if (!recompute) {
      x = ApplyLayer(layer, index, x, positions_N, attention);
      continue;
    }
    std::vector<at::Tensor> inputs = {x};
    TransformerWeights::Layer copy = layer;
    ForEachTensor(copy, "",
                  [&](const std::string&, at::Tensor& tensor) { inputs.push_back(tensor); });
    x = Recompute(
        [this, copy, index, positions_N, attention](const std::vector<at::Tensor>& given) {
          TransformerWeights::Layer given_layer = copy;
          size_t next = 1;
          ForEachTensor(given_layer, "",
                        [&](const std::string&, at::Tensor& tensor) { tensor = given[next++]; });
          return ApplyLayer(given_layer, index, given[0], positions_N, attention);
        },
        inputs);
  }
  return RmsNorm(x, weights.norm_H, config_.rms_norm_eps);
}

at::Tensor Transformer::ApplyLayer(const TransformerWeights::Layer& layer, int64_t index,
                                   const at::Tensor& x, const at::Tensor& positions_N,
                                   const AttentionFn& attention) const {
  const int64_t heads = config_.num_attention_heads;
  const int64_t kv_heads = config_.num_key_value_heads;
  const int64_t dim = config_.head_dim;
  const double eps = config_.rms_norm_eps;
  const at::ScalarType type = layer.qkv.scalar_type();
  const at::Tensor h = RmsNorm(x, layer.input_norm_H, eps, type);
  const at::Tensor qkv =
      Multiply(h, layer.qkv, layer.qkv_bias).view({x.size(0), heads + 2 * kv_heads, dim});
  // Rotate q and k together; they are adjacent.
  at::Tensor qk = qkv.narrow(1, 0, heads + kv_heads);
  if (layer.q_norm_D.defined()) {
    qk = at::cat({NormalizeHeads(qk.narrow(1, 0, heads), layer.q_norm_D, eps),
                  NormalizeHeads(qk.narrow(1, heads, kv_heads), layer.k_norm_D, eps)},
                 1);
  }
  qk = Rope(qk, cos_TD_, sin_TD_, positions_N);
  qk = RoundTo(qk, type);
  const at::Tensor mixed = attention(index, qk.narrow(1, 0, heads), qk.narrow(1, heads, kv_heads),
                                     RoundTo(qkv.narrow(1, heads + kv_heads, kv_heads), type));
  const at::Tensor sum = x + Multiply(mixed, layer.o, layer.o_bias);
  const bool mixture = layer.router.defined();
  const at::Tensor g = RmsNorm(sum, layer.post_norm_H, eps, mixture ? at::kFloat : type);
  return sum + (mixture ? ApplyExperts(layer, config_, g) : ApplyMlp(layer.mlps.front(), g));
}

at::Tensor Transformer::Logits(const TransformerWeights& weights, const at::Tensor& hidden) {
  return Multiply(hidden, weights.lm_head_VH).to(at::kFloat);
}

}  // namespace freshet
