#include "model/parameter_layout.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

// 64 bytes of fp32, so that blocks are aligned for vector loads.
constexpr int64_t kAlignElements = 16;

class LayoutBuilder {
 public:
  // Appends the named tensors, which have the same number of columns, as one block.
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
  ParameterLayout& layout() { return layout_; }

 private:
  ParameterLayout layout_;
};

}  // namespace

ParameterLayout MakeParameterLayout(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = config.num_attention_heads * config.head_dim;
  const int64_t kv_rows = config.num_key_value_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  LayoutBuilder builder;
  ParameterLayout& layout = builder.layout();
  layout.embed = builder.Add({{"model.embed_tokens.weight", {config.vocab_size, hidden}}});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    ParameterLayout::Layer layer;
    layer.input_norm = builder.Add({{prefix + "input_layernorm.weight", {hidden}}});
    layer.qkv = builder.Add({{prefix + "self_attn.q_proj.weight", {q_rows, hidden}},
                             {prefix + "self_attn.k_proj.weight", {kv_rows, hidden}},
                             {prefix + "self_attn.v_proj.weight", {kv_rows, hidden}}});
    layer.o = builder.Add({{prefix + "self_attn.o_proj.weight", {hidden, q_rows}}});
    layer.post_norm = builder.Add({{prefix + "post_attention_layernorm.weight", {hidden}}});
    layer.gate_up = builder.Add({{prefix + "mlp.gate_proj.weight", {inner, hidden}},
                                 {prefix + "mlp.up_proj.weight", {inner, hidden}}});
    layer.down = builder.Add({{prefix + "mlp.down_proj.weight", {hidden, inner}}});
    layout.layers.push_back(std::move(layer));
  }
  layout.norm = builder.Add({{"model.norm.weight", {hidden}}});
  layout.lm_head = config.tie_word_embeddings
                       ? layout.embed
                       : builder.Add({{"lm_head.weight", {config.vocab_size, hidden}}});
  return layout;
}

}  // namespace freshet
