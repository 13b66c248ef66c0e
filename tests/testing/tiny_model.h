#ifndef FRESHET_TESTS_TESTING_TINY_MODEL_H_
#define FRESHET_TESTS_TESTING_TINY_MODEL_H_

#include <cstdint>

#include "model/model_config.h"
#include "weights/manifest.h"

namespace freshet {

// A small Llama with grouped-query attention: 32 tokens, context length 128.
ModelConfig TinyModel();

// The same size with every optional part: biases, head norms, a window of 5 keys on the first
// layer, and a mixture of experts on the second.
ModelConfig TinyMixedModel();

// Random weights of `config`, determined by the seed. They are large enough that the model's output
// distributions are far from uniform.
WeightSnapshot RandomWeights(const ModelConfig& config, uint64_t seed, PolicyVersion policy);

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_TINY_MODEL_H_
