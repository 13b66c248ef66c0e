#include "model/parameter_layout.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

// 64 bytes of fp32, so that blocks are aligned for vector loads.
constexpr int64_t kAlignElements = 16;

// Name and rows of a matrix or vector.
using NamedRows = std::pair<std::string, int64_t>;

class LayoutBuilder {
 public:
  // Appends matrices NAME.weight of `columns` columns as one block.
  ParameterBlock Matrix(const std::vector<NamedRows>& parts, int64_t columns) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
    for (const auto& [name, rows] : parts) tensors.push_back({name + ".weight", {rows, columns}});
    return Add(std::move(tensors));
  }
  // Appends vectors, NAME.weight or NAME.bias.
  ParameterBlock Vector(const std::vector<NamedRows>& parts, const char* end) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
    for (const auto& [name, size] : parts) tensors.push_back({name + end, {size}});
    return Add(std::move(tensors));
  }
  ParameterLayout& layout() { return layout_; }

 private:
  ParameterBlock Add(std::vector<std::pair<std::string, std::vector<int64_t>>> tensors) {
    layout_.num_elements =
        (layout_.num_elements + kAlignElements - 1) / kAlignElements * kAlignElements;
    ParameterBlock block{layout_.num_elements, tensors.front().second};
    block.shape[0] = 0;
    for (auto& [name, shape] : tensors) {
      int64_t size = 1;
      for (const int64_t dim : shape) size *= dim;
      block.shape[0] += shape[0];
      layout_.entries.push_back({std::move(name), shape, layout_.num_elements, size});
      layout_.num_elements += size;
      layout_.num_parameters += size;
    }
    return block;
  }

  ParameterLayout layout_;
};

constexpr char kWeight[] = ".weight";
constexpr char kBias[] = ".bias";

ParameterLayout::Mlp AddMlp(LayoutBuilder& builder, const std::string& prefix, int64_t hidden,
                            int64_t inner, bool bias) {
  const std::vector<NamedRows> gate_up = {{prefix + "gate_proj", inner},
                                          {prefix + "up_proj", inner}};
  const std::vector<NamedRows> down = {{prefix + "down_proj", hidden}};
  ParameterLayout::Mlp mlp;
  mlp.gate_up = builder.Matrix(gate_up, hidden);
  if (bias) mlp.gate_up_bias = builder.Vector(gate_up, kBias);
  mlp.down = builder.Matrix(down, inner);
  if (bias) mlp.down_bias = builder.Vector(down, kBias);
  return mlp;
}

ParameterLayout::Layer AddLayer(LayoutBuilder& builder, const ModelConfig& config, int64_t index) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = config.num_attention_heads * config.head_dim;
  const int64_t kv_rows = config.num_key_value_heads * config.head_dim;
  const std::string prefix = StrCat("model.layers.", index, ".");
  const std::string attention = prefix + "self_attn.";
  const std::vector<NamedRows> qkv = {{attention + "q_proj", q_rows},
                                      {attention + "k_proj", kv_rows},
                                      {attention + "v_proj", kv_rows}};
  const std::vector<NamedRows> o = {{attention + "o_proj", hidden}};
  ParameterLayout::Layer layer;
  layer.input_norm = builder.Vector({{prefix + "input_layernorm", hidden}}, kWeight);
  layer.qkv = builder.Matrix(qkv, hidden);
  if (config.qkv_bias) layer.qkv_bias = builder.Vector(qkv, kBias);
  if (config.qk_norm) {
    layer.q_norm = builder.Vector({{attention + "q_norm", config.head_dim}}, kWeight);
    layer.k_norm = builder.Vector({{attention + "k_norm", config.head_dim}}, kWeight);
  }
  layer.o = builder.Matrix(o, q_rows);
  if (config.o_bias) layer.o_bias = builder.Vector(o, kBias);
  layer.post_norm = builder.Vector({{prefix + "post_attention_layernorm", hidden}}, kWeight);
  if (!config.IsMoe(index)) {
    layer.mlps.push_back(
        AddMlp(builder, prefix + "mlp.", hidden, config.intermediate_size, config.mlp_bias));
    return layer;
  }
  layer.router = builder.Matrix({{prefix + "mlp.gate", config.num_experts}}, hidden);
  for (int64_t e = 0; e < config.num_experts; ++e) {
    layer.mlps.push_back(AddMlp(builder, StrCat(prefix, "mlp.experts.", e, "."), hidden,
                                config.moe_intermediate_size, config.mlp_bias));
  }
  return layer;
}

}  // namespace

ParameterLayout MakeParameterLayout(const ModelConfig& config) {
  LayoutBuilder builder;
  ParameterLayout& layout = builder.layout();
  layout.embed = builder.Matrix({{"model.embed_tokens", config.vocab_size}}, config.hidden_size);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layout.layers.push_back(AddLayer(builder, config, i));
  }
  layout.norm = builder.Vector({{"model.norm", config.hidden_size}}, kWeight);
  layout.lm_head =
      config.tie_word_embeddings
          ? layout.embed
          : builder.Matrix({{config.scalar_head ? "score" : "lm_head", config.num_outputs()}},
                           config.hidden_size);
  return layout;
}

}  // namespace freshet
