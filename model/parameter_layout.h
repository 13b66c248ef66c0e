#ifndef FRESHET_MODEL_PARAMETER_LAYOUT_H_
#define FRESHET_MODEL_PARAMETER_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace freshet {

// A stored tensor within the flat parameter arena.
struct ParameterEntry {
  std::string name;  // as in a Hugging Face directory
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in elements from the arena's start
  int64_t size = 0;    // elements
};

// A block that is multiplied as one matrix. q|k|v and gate|up are adjacent, so the fused matrix is
// a view of the arena without a copy. Without a shape: the model does not have it.
struct ParameterBlock {
  int64_t offset = 0;
  std::vector<int64_t> shape;
};

// Layout of a model's parameters in one flat arena. The trainer's master weights, the
// weight plane and the engines use the same order, so publishing is one copy.
struct ParameterLayout {
  struct Mlp {
    ParameterBlock gate_up;       // [2 * F, H]
    ParameterBlock gate_up_bias;  // [2 * F]
    ParameterBlock down;          // [H, F]
    ParameterBlock down_bias;     // [H]
  };
  struct Layer {
    ParameterBlock input_norm;  // [H]
    ParameterBlock qkv;         // [(heads + 2 * kv_heads) * head_dim, H]
    ParameterBlock qkv_bias;    // [(heads + 2 * kv_heads) * head_dim]
    ParameterBlock q_norm;      // [head_dim]
    ParameterBlock k_norm;      // [head_dim]
    ParameterBlock o;           // [H, heads * head_dim]
    ParameterBlock o_bias;      // [H]
    ParameterBlock post_norm;   // [H]
    ParameterBlock router;      // [experts, H]; only of a mixture of experts
    std::vector<Mlp> mlps;      // one, or one per expert
  };
  std::vector<ParameterEntry> entries;
  ParameterBlock embed;  // [V, H]
  std::vector<Layer> layers;
  ParameterBlock norm;  // [H]
  // [V, H], the same block as `embed` if tied; [1, H] of a scalar head.
  ParameterBlock lm_head;
  int64_t num_elements = 0;    // arena size including padding
  int64_t num_parameters = 0;  // sum of the entries' sizes
};

// Pure. `config` must be valid.
ParameterLayout MakeParameterLayout(const ModelConfig& config);

}  // namespace freshet

#endif  // FRESHET_MODEL_PARAMETER_LAYOUT_H_
