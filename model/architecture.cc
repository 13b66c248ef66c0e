#include "model/architecture.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr Architecture kArchitectures[] = {
    {"llama", "Llama", 2048, 0, /*qk_norm=*/false},
    {"mistral", "Mistral", 131072, 0, /*qk_norm=*/false},
    {"qwen2", "Qwen2", 32768, 0, /*qk_norm=*/false},
    {"qwen3", "Qwen3", 32768, 128, /*qk_norm=*/true},
    {"qwen3_moe", "Qwen3Moe", 32768, 0, /*qk_norm=*/true},
};

constexpr int64_t kMaxWindow = 1 << 24;
constexpr int64_t kMaxExperts = 1024;

void CheckSupported(JsonFields& fields) {
  const std::string activation = fields.String("hidden_act", "silu");
  if (activation != "silu") {
    fields.AddError(
        StrCat("hidden_act ", JsonExcerpt(activation), " is not supported; supported: silu"));
  }
  if (fields.Number("partial_rotary_factor", 1.0) != 1.0) {
    fields.AddError("partial_rotary_factor other than 1 is not supported");
  }
  if (fields.Has("quantization_config")) {
    fields.AddError("quantization_config: quantized weights are not supported");
  }
}

// Number of outputs of a ...ForSequenceClassification, as transformers reads it.
Json NumLabels(const JsonFields& fields) {
  if (fields.Has("num_labels")) return fields.Get("num_labels");
  const Json& labels = fields.Get("id2label");
  return labels.is_object() ? Json(labels.size()) : Json(2);
}

void ReadHead(const Architecture& architecture, JsonFields& fields, ModelConfig& config) {
  const Json& names = fields.Get("architectures");
  if (names.is_null()) return;
  const std::string generator = StrCat(architecture.family, "ForCausalLM");
  const std::string classifier = StrCat(architecture.family, "ForSequenceClassification");
  const bool listed = names.is_array() && !names.empty();
  const auto has = [&](const std::string& name) {
    return listed && std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has(generator)) return;
  if (!has(classifier)) {
    fields.AddError(StrCat("architecture ", JsonExcerpt(listed ? names[0] : names),
                           " is not supported; supported: ", generator, ", ", classifier));
    return;
  }
  const Json labels = NumLabels(fields);
  if (labels != 1) {
    fields.AddError(StrCat(classifier, " with ", JsonExcerpt(labels),
                           " outputs (num_labels or id2label; the default is 2) is not supported; ",
                           "supported: 1, a reward model"));
    return;
  }
  config.scalar_head = true;
  config.tie_word_embeddings = false;
}

// Sliding layers by the list `layer_types`, which newer files have.
void ReadLayerTypes(JsonFields& fields, ModelConfig& config) {
  const Json& types = fields.Get("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != config.num_hidden_layers) {
    fields.AddError(StrCat("layer_types is ", JsonExcerpt(types), ", want a list of ",
                           config.num_hidden_layers, " names"));
    return;
  }
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      fields.AddError(StrCat("layer_types holds ", JsonExcerpt(type),
                             ", which is not supported; supported: full_attention, "
                             "sliding_attention"));
      return;
    }
    config.sliding_layers.push_back(type == "sliding_attention");
  }
}

void ReadWindow(const Architecture& architecture, JsonFields& fields, ModelConfig& config) {
  const std::string_view type = architecture.model_type;
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (type == "llama") return;
  if (type != "mistral" && !fields.Bool("use_sliding_window", false)) return;
  const int64_t fallback = fields.Contains("sliding_window") ? 0 : 4096;
  config.sliding_window = fields.Int("sliding_window", fallback, 1, kMaxWindow);
  if (config.sliding_window == 0) return;
  if (type == "mistral" || type == "qwen3_moe") {
    config.sliding_layers.assign(layers, true);
  } else if (fields.Has("layer_types")) {
    ReadLayerTypes(fields, config);
  } else {
    const auto first = static_cast<size_t>(fields.Int("max_window_layers", 28, 0, 4096));
    for (size_t i = 0; i < layers; ++i) config.sliding_layers.push_back(i >= first);
  }
}

void ReadExperts(JsonFields& fields, ModelConfig& config) {
  const char* name = fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  config.num_experts = fields.Int(name, 128, 0, kMaxExperts);
  if (config.num_experts == 0) return;
  config.num_experts_per_tok = fields.Int("num_experts_per_tok", 8, 1, kMaxExperts);
  config.moe_intermediate_size = fields.Int("moe_intermediate_size", 768, 1, 1 << 16);
  config.norm_topk_prob = fields.Bool("norm_topk_prob", false);
  const int64_t every = fields.Int("decoder_sparse_step", 1, 1, 4096);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    config.moe_layers.push_back((i + 1) % every == 0);
  }
  const Json& dense = fields.Get("mlp_only_layers");
  if (dense.is_null()) return;
  const bool valid =
      dense.is_array() && std::all_of(dense.begin(), dense.end(), [&](const Json& i) {
        return i.is_number_integer() && i >= 0 && i < config.num_hidden_layers;
      });
  if (!valid) {
    fields.AddError(StrCat("mlp_only_layers is ", JsonExcerpt(dense), ", want a list of layers"));
    return;
  }
  for (const Json& i : dense) config.moe_layers[i.get<size_t>()] = false;
}

}  // namespace

const Architecture* FindArchitecture(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& a) { return a.model_type == model_type; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::string SupportedModelTypes() {
  return absl::StrJoin(kArchitectures, ", ",
                       [](std::string* out, const Architecture& a) { *out += a.model_type; });
}

void ReadArchitecture(const Architecture& architecture, JsonFields& fields, ModelConfig& config) {
  const std::string_view type = architecture.model_type;
  CheckSupported(fields);
  ReadHead(architecture, fields, config);
  config.model_type = architecture.model_type;
  config.qk_norm = architecture.qk_norm;
  const bool biased = type != "mistral" && fields.Bool("attention_bias", false);
  config.qkv_bias = type == "qwen2" || biased;
  config.o_bias = type != "qwen2" && biased;
  config.mlp_bias = fields.Bool("mlp_bias", false);
  if (type != "llama" && config.mlp_bias) {
    fields.AddError(StrCat("mlp_bias true is not supported for ", type));
  }
  ReadWindow(architecture, fields, config);
  if (type == "qwen3_moe") ReadExperts(fields, config);
}

}  // namespace freshet
