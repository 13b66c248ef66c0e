#ifndef FRESHET_TESTS_TESTING_TINY_MODEL_H_
#define FRESHET_TESTS_TESTING_TINY_MODEL_H_

#include <cstdint>

#include "model/model_config.h"
#include "weights/manifest.h"

namespace freshet {

// A Llama with grouped queries that is computed in microseconds: 32 tokens, context 128.
ModelConfig TinyModel();

// Random weights of `config` as a publisher would send them; equal for equal seeds. They are wide
// enough that the model's distributions are far from uniform.
WeightSnapshot RandomWeights(const ModelConfig& config, uint64_t seed, PolicyVersion policy);

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_TINY_MODEL_H_
