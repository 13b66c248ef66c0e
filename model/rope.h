#ifndef FRESHET_MODEL_ROPE_H_
#define FRESHET_MODEL_ROPE_H_

#include <vector>

#include "model/model_config.h"

namespace freshet {

// The head_dim / 2 inverse frequencies of the rotary embedding: theta^(-2i/D), scaled as in Hugging
// Face `modeling_rope_utils`: `linear` divides by the factor; `llama3` keeps wavelengths below
// original/high_freq_factor, divides those above original/low_freq_factor, and interpolates in
// between. Pure.
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

// Cosines and sines of the angles, [max_position_embeddings][head_dim / 2]. The angle is computed
// in fp32, like the reference.
struct RopeTables {
  std::vector<float> cos;
  std::vector<float> sin;
};
RopeTables MakeRopeTables(const ModelConfig& config);

}  // namespace freshet

#endif  // FRESHET_MODEL_ROPE_H_
