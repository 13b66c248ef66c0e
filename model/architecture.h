#ifndef FRESHET_MODEL_ARCHITECTURE_H_
#define FRESHET_MODEL_ARCHITECTURE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_document.h"
#include "model/model_config.h"

namespace freshet {

// A family of models of transformers. All are decoders of the same block (model/transformer.h); the
// families differ in optional parts of it and in defaults.
struct Architecture {
  const char* model_type;  // in config.json
  const char* family;      // its classes in `architectures` are FAMILYForCausalLM and
                           // FAMILYForSequenceClassification, the latter with a scalar head
  // Defaults of members that config.json may leave out.
  int64_t max_position_embeddings;
  int64_t head_dim;  // 0: hidden_size / num_attention_heads
  bool qk_norm;      // see ModelConfig
};

// Null if the family is not supported.
const Architecture* FindArchitecture(std::string_view model_type);
// "llama, mistral, ...".
std::string SupportedModelTypes();

// Reads the members of config.json that only some families have into `config`, whose sizes are set:
// biases, sliding window and experts; and which head the model has. Adds what is not supported to
// the errors of `fields`.
void ReadArchitecture(const Architecture& architecture, JsonFields& fields, ModelConfig& config);

}  // namespace freshet

#endif  // FRESHET_MODEL_ARCHITECTURE_H_
