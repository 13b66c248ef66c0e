#include "tests/testing/tiny_model.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "model/transformer.h"

namespace freshet {

ModelConfig TinyModel() {
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.intermediate_size = 48;
  config.max_position_embeddings = 128;
  config.initializer_range = 0.3;
  return config;
}

ModelConfig TinyMixedModel() {
  ModelConfig config = TinyModel();
  config.qkv_bias = true;
  config.o_bias = true;
  config.mlp_bias = true;
  config.qk_norm = true;
  config.sliding_window = 5;
  config.sliding_layers = {true, false};
  config.num_experts = 4;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 24;
  config.norm_topk_prob = true;
  config.moe_layers = {false, true};
  return config;
}

WeightSnapshot RandomWeights(const ModelConfig& config, uint64_t seed, PolicyVersion policy) {
  const ParameterLayout layout = MakeParameterLayout(config);
  const at::Tensor flat = at::zeros({layout.num_elements}, at::kFloat);
  InitializeWeights(layout, config.initializer_range, seed, flat);
  std::vector<std::byte> bytes(flat.nbytes());
  std::memcpy(bytes.data(), flat.const_data_ptr(), flat.nbytes());
  WeightSnapshot snapshot;
  snapshot.manifest.policy = policy;
  snapshot.manifest.epoch = 1;
  HashBuckets(bytes, 1 << 20, snapshot.manifest);
  snapshot.bytes = MakeWeightBytes(std::move(bytes));
  return snapshot;
}

}  // namespace freshet
