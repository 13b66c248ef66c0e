#ifndef FRESHET_MODEL_ROPE_H_
#define FRESHET_MODEL_ROPE_H_

#include <vector>

#include "model/model_config.h"

namespace freshet {

// Inverse frequencies of the rotary embedding, head_dim / 2 of them: theta^(-2i/D), then scaled by
// the config's rule. Rules as in Hugging Face `modeling_rope_utils`: `linear` divides by the
// factor; `llama3` keeps wavelengths below original/high_freq_factor, divides those above
// original/low_freq_factor, and interpolates between. Pure.
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace freshet

#endif  // FRESHET_MODEL_ROPE_H_
