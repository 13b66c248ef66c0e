#ifndef FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVED_MODEL_H_
#define FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVED_MODEL_H_

#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/model_config.h"
#include "model/parameter_layout.h"
#include "weights/manifest.h"

namespace freshet {

// A tiny model of 32 tokens and context length 64.
inline ModelConfig ServedConfig() {
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  config.intermediate_size = 12;
  config.max_position_embeddings = 64;
  return config;
}

// fp32 weights of `config` with the entries that a trainer publishes. `broken`: one is NaN.
inline WeightSnapshot ServedWeights(const ModelConfig& config, const PolicyVersion& policy,
                                    bool broken = false) {
  const ParameterLayout layout = MakeParameterLayout(config);
  std::vector<std::byte> bytes(static_cast<size_t>(layout.num_elements) * sizeof(float));
  for (int64_t i = 0; i < layout.num_elements; ++i) {
    const auto seed = static_cast<uint64_t>(policy.lineage * 1000 + policy.version);
    auto value = static_cast<float>(ToUniform(RandomBits(seed, static_cast<uint64_t>(i))) - 0.5);
    if (broken && i == layout.embed.offset) value = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof(value));
  }
  WeightSnapshot snapshot;
  snapshot.manifest.policy = policy;
  for (const ParameterEntry& entry : layout.entries) {
    snapshot.manifest.entries.push_back(
        {entry.name, "F32", entry.shape, entry.offset * static_cast<int64_t>(sizeof(float))});
  }
  HashBuckets(bytes, 1 << 20, snapshot.manifest);
  snapshot.bytes = MakeWeightBytes(std::move(bytes));
  return snapshot;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVED_MODEL_H_
