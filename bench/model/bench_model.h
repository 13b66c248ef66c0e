#ifndef FRESHET_BENCH_MODEL_BENCH_MODEL_H_
#define FRESHET_BENCH_MODEL_BENCH_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "model/dtype.h"
#include "model/model_config.h"
#include "weights/weight_arena.h"

namespace freshet {

// Llama shapes of the benchmark: T has 33.6 M parameters, M (any other name) 415 M.
ModelConfig BenchModel(const std::string& name);

// Random weights that bf16 holds exactly, the same in every process.
WeightBytes BenchWeights(const ModelConfig& config, Dtype dtype);  // F32 or BF16

// Writes the model as an existing Hugging Face directory of bf16 tensors. Errors of
// WriteSafetensors.
absl::Status WriteBenchModel(const ModelConfig& config, const std::string& directory);

}  // namespace freshet

#endif  // FRESHET_BENCH_MODEL_BENCH_MODEL_H_
