#include "bench/model/bench_model.h"

#include <fstream>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "model/dtype.h"
#include "model/parameter_layout.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"

namespace freshet {

ModelConfig BenchModel(const std::string& name) {
  ModelConfig config;
  const bool small = name == "T";
  config.vocab_size = small ? 8192 : 32000;
  config.hidden_size = small ? 512 : 896;
  config.num_hidden_layers = small ? 8 : 24;
  config.num_attention_heads = small ? 8 : 14;
  config.num_key_value_heads = small ? 4 : 2;
  config.intermediate_size = small ? 1536 : 4864;
  config.max_position_embeddings = 4096;
  config.DeriveDefaults();
  return config;
}

WeightBytes BenchWeights(const ModelConfig& config, Dtype dtype) {
  constexpr float kBound = 0.0346F;  // uniform, standard deviation 0.02
  const ParameterLayout layout = MakeParameterLayout(config);
  std::vector<std::byte> bytes(static_cast<size_t>(layout.num_elements) * DtypeBytes(dtype));
  for (const ParameterEntry& entry : layout.entries) {
    const bool norm = entry.shape.size() == 1;
    for (int64_t i = 0; i < entry.size; ++i) {
      const auto index = static_cast<uint64_t>(entry.offset + i);
      const auto bits = static_cast<uint16_t>(Mix64(index / 4) >> (16 * (index % 4)));
      const float share = (static_cast<float>(bits) - 32767.5F) / 32768.0F;
      const uint16_t weight = RoundToBf16(norm ? 1.0F : kBound * share);
      if (dtype == Dtype::kBf16) {
        reinterpret_cast<uint16_t*>(bytes.data())[index] = weight;
      } else {
        reinterpret_cast<float*>(bytes.data())[index] = WidenBf16(weight);
      }
    }
  }
  return MakeWeightBytes(std::move(bytes));
}

absl::Status WriteBenchModel(const ModelConfig& config, const std::string& directory) {
  const ParameterLayout layout = MakeParameterLayout(config);
  const WeightBytes weights = BenchWeights(config, Dtype::kBf16);
  const auto* values = reinterpret_cast<const uint16_t*>(weights->data());
  std::vector<TensorToWrite> tensors;
  for (const ParameterEntry& entry : layout.entries) {
    tensors.push_back({entry.name, Dtype::kBf16, entry.shape, values + entry.offset,
                       static_cast<uint64_t>(entry.size) * sizeof(uint16_t)});
  }
  const nlohmann::json json = {{"architectures", {"LlamaForCausalLM"}},
                               {"model_type", "llama"},
                               {"torch_dtype", "bfloat16"},
                               {"vocab_size", config.vocab_size},
                               {"hidden_size", config.hidden_size},
                               {"num_hidden_layers", config.num_hidden_layers},
                               {"num_attention_heads", config.num_attention_heads},
                               {"num_key_value_heads", config.num_key_value_heads},
                               {"head_dim", config.head_dim},
                               {"intermediate_size", config.intermediate_size},
                               {"max_position_embeddings", config.max_position_embeddings},
                               {"rms_norm_eps", config.rms_norm_eps},
                               {"rope_theta", config.rope_theta},
                               {"hidden_act", "silu"},
                               {"tie_word_embeddings", false},
                               {"bos_token_id", 1},
                               {"eos_token_id", 2}};
  std::ofstream file(directory + "/config.json");
  file << json.dump(1) << '\n';
  if (!file.flush()) return FailedPrecondition("cannot write ", directory, "/config.json");
  return WriteSafetensors(directory + "/model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace freshet
