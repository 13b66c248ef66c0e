#ifndef FRESHET_BENCH_ROLLOUT_MACHINE_H_
#define FRESHET_BENCH_ROLLOUT_MACHINE_H_

#include <cstdint>
#include <string>

#include "model/model_config.h"
#include "nlohmann/json.hpp"

namespace freshet {

// The machine's ceilings: the fastest of our matrix products and ATen's on operands in the L2
// cache, by precision, and a read of memory.
nlohmann::json MeasureCeilings(int threads);

// Peak rates of a device with ATen: FLOP/s of a bf16 matrix product, and bytes read and written per
// second by a copy.
nlohmann::json MeasureDeviceCeilings(const std::string& device);

// GFLOP/s of every set of product kernels that this CPU has, on one thread, and which set is
// chosen.
nlohmann::json MeasureKernels();

// Seconds for all matrix products of `rows` tokens of a model, with our batch-invariant kernels and
// with ATen, which chooses the order of its sums by the size of the batch.
nlohmann::json MeasureProducts(const ModelConfig& config, int64_t rows, int threads);

}  // namespace freshet

#endif  // FRESHET_BENCH_ROLLOUT_MACHINE_H_
