#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/architecture.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;
constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;
constexpr size_t kMaxEosIds = 64;

// The upper bounds, with that of the number of expert matrices, keep a model's size in bytes within
// 63 bits.
struct SizeBound {
  const char* name;
  int64_t ModelConfig::*field;
  int64_t max;
};
constexpr SizeBound kSizes[] = {
    {"vocab_size", &ModelConfig::vocab_size, kMaxTokenId + 1},
    {"hidden_size", &ModelConfig::hidden_size, 1 << 18},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers, 4096},
    {"num_attention_heads", &ModelConfig::num_attention_heads, 4096},
    {"num_key_value_heads", &ModelConfig::num_key_value_heads, 4096},
    {"head_dim", &ModelConfig::head_dim, 4096},
    {"intermediate_size", &ModelConfig::intermediate_size, 1 << 22},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings, 1 << 24},
};
constexpr int64_t kMaxLayersTimesExperts = 1 << 17;
constexpr const char* kRequired[] = {"vocab_size", "hidden_size", "num_hidden_layers",
                                     "num_attention_heads", "intermediate_size"};

void ReadDtype(JsonFields& fields, ModelConfig& config) {
  const char* name = fields.Has("dtype") ? "dtype" : "torch_dtype";
  std::string dtype = fields.String(name, "float32");
  if (dtype.rfind("torch.", 0) == 0) dtype.erase(0, 6);
  if (dtype == "float32") {
    config.dtype = Dtype::kF32;
  } else if (dtype == "bfloat16") {
    config.dtype = Dtype::kBf16;
  } else if (dtype == "float16") {
    config.dtype = Dtype::kF16;
  } else {
    fields.AddError(StrCat(name, " ", JsonExcerpt(dtype),
                           " is not supported; supported: float32, bfloat16, float16"));
  }
}

void ReadRopeScaling(JsonFields& rope, RopeScaling& scaling) {
  // Old files use "type".
  const std::string type = rope.String(rope.Has("rope_type") ? "rope_type" : "type", "default");
  if (type == "default") return;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::kLlama3;
    scaling.low_freq_factor = rope.Number("low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = rope.Number("high_freq_factor", scaling.high_freq_factor);
    scaling.original_max_position_embeddings =
        rope.RequiredInt("original_max_position_embeddings", 1, 1 << 24);
  } else {
    rope.AddError(StrCat("rope_type ", JsonExcerpt(type),
                         " is not supported; supported: default, linear, llama3"));
    return;
  }
  if (!rope.Has("factor")) rope.AddError("factor is missing");
  scaling.factor = rope.Number("factor", scaling.factor);
}

void ReadRope(JsonFields& fields, const std::string& source, std::vector<std::string>& errors,
              ModelConfig& config) {
  config.rope_theta = fields.Number("rope_theta", config.rope_theta);
  for (const char* part : {"rope_scaling", "rope_parameters"}) {
    if (!fields.Has(part) || fields.Get(part).empty()) continue;
    JsonFields rope(fields.Get(part), StrCat(source, ": ", part), errors);
    config.rope_theta = rope.Number("rope_theta", config.rope_theta);
    ReadRopeScaling(rope, config.rope_scaling);
    if (rope.Number("partial_rotary_factor", 1.0) != 1.0) {
      rope.AddError("partial_rotary_factor other than 1 is not supported");
    }
    return;  // rope_scaling wins, as in transformers
  }
}

// Accepts a token id, a list of ids, or null.
void ReadTokenIds(JsonFields& fields, const char* name, std::vector<int32_t>& ids) {
  const Json& value = fields.Get(name);
  if (value.is_null()) return;
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kMaxEosIds) {
    fields.AddError(StrCat(name, " has ", list.size(), " ids, want at most ", kMaxEosIds));
    return;
  }
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      fields.AddError(StrCat(name, " holds ", JsonExcerpt(id), ", want token ids"));
      return;
    }
    const auto number = id.get<int32_t>();
    if (std::find(ids.begin(), ids.end(), number) == ids.end()) ids.push_back(number);
  }
}

void CheckRope(const ModelConfig& config, std::vector<std::string>& errors) {
  const RopeScaling& rope = config.rope_scaling;
  if (!(config.rope_theta > 0.0) || !std::isfinite(config.rope_theta)) {
    errors.push_back(StrCat("rope_theta is ", config.rope_theta, ", want a number above 0"));
  }
  if (rope.kind == RopeScaling::Kind::kNone) return;
  if (!(rope.factor >= 1.0) || !std::isfinite(rope.factor)) {
    errors.push_back(StrCat("rope scaling factor is ", rope.factor, ", want at least 1"));
  }
  if (rope.kind != RopeScaling::Kind::kLlama3) return;
  if (!(rope.low_freq_factor > 0.0 && rope.low_freq_factor < rope.high_freq_factor) ||
      !std::isfinite(rope.high_freq_factor)) {
    errors.push_back(StrCat("rope scaling low_freq_factor is ", rope.low_freq_factor,
                            ", want above 0 and below high_freq_factor ", rope.high_freq_factor));
  }
  if (rope.original_max_position_embeddings < 1) {
    errors.push_back(StrCat("rope scaling original_max_position_embeddings is ",
                            rope.original_max_position_embeddings, ", want at least 1"));
  }
}

void CheckTokenIds(const ModelConfig& config, std::vector<std::string>& errors) {
  const auto check = [&](const char* name, int64_t id) {
    if (id >= 0 && id < config.vocab_size) return;
    errors.push_back(
        StrCat(name, " is ", id, ", want from 0 to vocab_size - 1 = ", config.vocab_size - 1));
  };
  if (config.bos_token_id) check("bos_token_id", *config.bos_token_id);
  for (const int32_t id : config.eos_token_ids) check("eos_token_id", id);
}

// A number for one id, a list for several, null for none.
Json EosJson(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

Json BosJson(const std::optional<int32_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

void ModelConfig::DeriveDefaults() {
  if (num_key_value_heads == 0) num_key_value_heads = num_attention_heads;
  const bool divides = num_attention_heads > 0 && hidden_size % num_attention_heads == 0;
  if (head_dim == 0 && divides) head_dim = hidden_size / num_attention_heads;
}

std::vector<std::string> ModelConfig::Errors() const {
  std::vector<std::string> errors;
  for (const SizeBound& size : kSizes) {
    const int64_t value = this->*size.field;
    if (value >= 1 && value <= size.max) continue;
    if (size.field == &ModelConfig::head_dim && value == 0 && num_attention_heads > 0) {
      errors.push_back(StrCat("hidden_size ", hidden_size, " is not a multiple of ",
                              "num_attention_heads ", num_attention_heads, "; set head_dim"));
      continue;
    }
    errors.push_back(StrCat(size.name, " is ", value, ", want from 1 to ", size.max));
  }
  if (num_experts > 0 && num_experts * num_hidden_layers > kMaxLayersTimesExperts) {
    errors.push_back(StrCat("num_experts ", num_experts, " in ", num_hidden_layers,
                            " layers, want at most ", kMaxLayersTimesExperts, " in all"));
  }
  if (num_experts > 0 && (num_experts_per_tok < 1 || num_experts_per_tok > num_experts)) {
    errors.push_back(StrCat("num_experts_per_tok is ", num_experts_per_tok,
                            ", want from 1 to num_experts ", num_experts));
  }
  if (head_dim % 2 != 0) {
    errors.push_back(StrCat("head_dim is ", head_dim, ", want an even number"));
  }
  if (num_key_value_heads > 0 && num_attention_heads % num_key_value_heads != 0) {
    errors.push_back(StrCat("num_attention_heads ", num_attention_heads,
                            " is not a multiple of num_key_value_heads ", num_key_value_heads));
  }
  if (!(rms_norm_eps > 0.0 && rms_norm_eps < 1.0)) {
    errors.push_back(StrCat("rms_norm_eps is ", rms_norm_eps, ", want between 0 and 1"));
  }
  if (!(initializer_range >= 0.0 && initializer_range <= 100.0)) {
    errors.push_back(StrCat("initializer_range is ", initializer_range, ", want from 0 to 100"));
  }
  CheckRope(*this, errors);
  CheckTokenIds(*this, errors);
  return errors;
}

absl::Status ModelConfig::Validate() const { return ErrorsToStatus(Errors()); }

absl::Status ModelConfig::CheckGenerates(const std::string& source) const {
  if (!scalar_head) return absl::OkStatus();
  return InvalidArgument(source, ": a reward model with a scalar head, which generates no text; ",
                         "serve it with `freshet serve` for rewards of type reward_model");
}

std::string ModelConfig::ToJson() const {
  const char* dtype_name = dtype == Dtype::kBf16  ? "bfloat16"
                           : dtype == Dtype::kF16 ? "float16"
                                                  : "float32";
  if (!config_text.empty()) {
    auto json = nlohmann::ordered_json::parse(config_text);  // ParseModelConfig accepted it
    if (json.contains("dtype")) json["dtype"] = dtype_name;
    if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = dtype_name;
    return json.dump(2) + "\n";
  }
  const Json json = {{"architectures", {"LlamaForCausalLM"}},
                     {"attention_bias", false},
                     {"attention_dropout", 0.0},
                     {"bos_token_id", BosJson(bos_token_id)},
                     {"eos_token_id", EosJson(eos_token_ids)},
                     {"head_dim", head_dim},
                     {"hidden_act", "silu"},
                     {"hidden_size", hidden_size},
                     {"initializer_range", initializer_range},
                     {"intermediate_size", intermediate_size},
                     {"max_position_embeddings", max_position_embeddings},
                     {"mlp_bias", false},
                     {"model_type", "llama"},
                     {"num_attention_heads", num_attention_heads},
                     {"num_hidden_layers", num_hidden_layers},
                     {"num_key_value_heads", num_key_value_heads},
                     {"rms_norm_eps", rms_norm_eps},
                     {"rope_scaling", nullptr},
                     {"rope_theta", rope_theta},
                     {"tie_word_embeddings", tie_word_embeddings},
                     {"torch_dtype", dtype_name},
                     {"use_cache", true},
                     {"vocab_size", vocab_size}};
  return json.dump(2) + "\n";
}

std::string ModelConfig::GenerationJson() const {
  if (!generation_text.empty()) return generation_text;
  Json json = Json::object();
  if (bos_token_id) json["bos_token_id"] = *bos_token_id;
  if (!eos_token_ids.empty()) json["eos_token_id"] = EosJson(eos_token_ids);
  return json.dump(2) + "\n";
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& source) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseJson(text, source));
  std::vector<std::string> errors;
  JsonFields fields(json, source, errors);
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(errors));
  const Json& type = fields.Get("model_type");
  const Architecture* architecture =
      type.is_string() ? FindArchitecture(type.get<std::string>()) : nullptr;
  if (architecture == nullptr) {
    if (type.is_null()) {
      return InvalidArgument(source, ": model_type is missing, want one of ",
                             SupportedModelTypes());
    }
    const std::string name = type.is_string() && type.get<std::string>().size() <= 40
                                 ? type.get<std::string>()
                                 : JsonExcerpt(type);
    return InvalidArgument(source, ": model_type ", name,
                           " is not supported; supported: ", SupportedModelTypes());
  }
  ModelConfig config;
  config.config_text = std::string(text);
  config.max_position_embeddings = architecture->max_position_embeddings;
  config.head_dim = architecture->head_dim;
  for (const SizeBound& size : kSizes) {
    const bool required = std::any_of(std::begin(kRequired), std::end(kRequired),
                                      [&](std::string_view name) { return name == size.name; });
    config.*size.field = required ? fields.RequiredInt(size.name, 1, size.max)
                                  : fields.Int(size.name, config.*size.field, 1, size.max);
  }
  config.rms_norm_eps = fields.Number("rms_norm_eps", config.rms_norm_eps);
  config.initializer_range = fields.Number("initializer_range", config.initializer_range);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  ReadRope(fields, source, errors, config);
  ReadDtype(fields, config);
  ReadTokenIds(fields, "eos_token_id", config.eos_token_ids);
  std::vector<int32_t> bos;
  ReadTokenIds(fields, "bos_token_id", bos);
  if (!bos.empty()) config.bos_token_id = bos.front();
  ReadArchitecture(*architecture, fields, config);
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(errors));
  config.DeriveDefaults();
  for (const std::string& error : config.Errors()) fields.AddError(error);
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(errors));
  return config;
}

absl::Status MergeGenerationConfig(std::string_view text, const std::string& source,
                                   ModelConfig& config) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseJson(text, source));
  std::vector<std::string> errors;
  JsonFields fields(json, source, errors);
  ReadTokenIds(fields, "eos_token_id", config.eos_token_ids);
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(errors));
  std::vector<std::string> id_errors;
  CheckTokenIds(config, id_errors);
  for (const std::string& error : id_errors) fields.AddError(error);
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(errors));
  config.generation_text = std::string(text);
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory, const DataRoots& roots) {
  const std::string path = StrCat(directory, "/config.json");
  FRESHET_ASSIGN_OR_RETURN(const std::string text, roots.ReadFile(path, kMaxConfigBytes));
  FRESHET_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, path));
  const std::string generation_path = StrCat(directory, "/generation_config.json");
  if (roots.Exists(generation_path)) {
    FRESHET_ASSIGN_OR_RETURN(const std::string generation,
                             roots.ReadFile(generation_path, kMaxConfigBytes));
    FRESHET_RETURN_IF_ERROR(MergeGenerationConfig(generation, generation_path, config));
  }
  return config;
}

}  // namespace freshet
