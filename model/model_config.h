#ifndef FRESHET_MODEL_MODEL_CONFIG_H_
#define FRESHET_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "model/dtype.h"

namespace freshet {

// Scaling of rotary frequencies for long contexts.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,  // positions are divided by `factor`
    kLlama3,  // low frequencies are divided by `factor`, high ones kept, with a smooth transition
  };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                  // kLlama3 only
  double high_freq_factor = 4.0;                 // kLlama3 only
  int64_t original_max_position_embeddings = 0;  // kLlama3 only
};

// Shape and constants of a decoder: RMS norm, rotary positions, grouped-query attention, gated SiLU
// MLP or mixture of experts. Fields and defaults are those of transformers, except that sizes have
// no defaults.
struct ModelConfig {
  std::string model_type = "llama";  // see model/architecture.h
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 2048;  // tokens
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each query and key head before the rotation
  // A reward model (...ForSequenceClassification): instead of a head over the vocabulary, one with
  // a single output, `score.weight` [1, hidden_size]. Not tied.
  bool scalar_head = false;
  int64_t sliding_window = 0;        // keys that a token of a sliding layer sees, with itself
  std::vector<bool> sliding_layers;  // by layer; empty: none slides
  int64_t num_experts = 0;           // 0: no mixture of experts
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;  // of one expert
  bool norm_topk_prob = false;        // the chosen experts' weights sum to 1
  std::vector<bool> moe_layers;       // by layer; empty: all are dense
  double initializer_range = 0.02;    // standard deviation of random weights
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // generation stops at any of them; no duplicates
  Dtype dtype = Dtype::kF32;           // of the stored weights
  // config.json and generation_config.json as they came; empty for a model that a job file defines.
  std::string config_text;
  std::string generation_text;

  // Number of keys that a token of `layer` sees, with itself; 0: all.
  int64_t Window(int64_t layer) const {
    return sliding_layers.empty() || !sliding_layers[static_cast<size_t>(layer)] ? 0
                                                                                 : sliding_window;
  }
  bool IsMoe(int64_t layer) const {
    return !moe_layers.empty() && moe_layers[static_cast<size_t>(layer)];
  }

  // Outputs of the head for a token.
  int64_t num_outputs() const { return scalar_head ? 1 : vocab_size; }

  // Derives num_key_value_heads and head_dim from the other sizes if they are 0.
  void DeriveDefaults();

  // All errors, one line each: name, value and bound. Empty if valid.
  std::vector<std::string> Errors() const;
  // INVALID_ARGUMENT with Errors(), one per line.
  absl::Status Validate() const;
  // INVALID_ARGUMENT, naming `source`: a scalar head, which cannot generate text.
  absl::Status CheckGenerates(const std::string& source) const;

  // config.json that transformers (4 and 5) loads: config_text with this dtype, or that of a
  // LlamaForCausalLM. ParseModelConfig reads it back, but for what generation_config.json added.
  std::string ToJson() const;
  // Matching generation_config.json: generation_text, or bos and eos.
  std::string GenerationJson() const;
};

// Parses config.json with either rope_theta, rope_scaling and torch_dtype, or rope_parameters and
// dtype. Error lines start with `source` (its path).
// INVALID_ARGUMENT, one line per error: malformed JSON; an unsupported architecture, activation,
// rope type or feature (named); a missing or invalid value.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& source);

// Adds the eos ids of generation_config.json (a number or a list) to `config`.
absl::Status MergeGenerationConfig(std::string_view text, const std::string& source,
                                   ModelConfig& config);

// Loads config.json and, if present, generation_config.json of a Hugging Face directory. Also
// returns NOT_FOUND (no config.json) and errors of DataRoots.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory,
                                            const DataRoots& roots = DataRoots::Unlimited());

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_CONFIG_H_
