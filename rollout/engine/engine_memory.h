#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_MEMORY_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_MEMORY_H_

#include <cstdint>

#include "base/memory_plan.h"
#include "model/model_config.h"
#include "rollout/engine/native_engine.h"

namespace freshet {

// Items of PlanEngine.
inline constexpr char kEngineWeights[] = "engine weights";
inline constexpr char kEvaluatedWeights[] = "evaluated weights";
inline constexpr char kKvCache[] = "KV cache";
inline constexpr char kBatch[] = "batch";

// Blocks of the engine's KV cache. Pure.
int64_t CacheBlocks(const ModelConfig& config, const NativeEngineOptions& options);

// Bytes of the weights as the CPU's kernels take them. Pure.
int64_t PackedWeightBytes(const ModelConfig& config, const NativeEngineOptions& options);

// What a NativeEngine needs, on a GPU without the buffers of CudaDecoder, for `running` samples.
// `evaluates`: it also has the weights of an evaluation. Pure.
MemoryPlan PlanEngine(const ModelConfig& config, const NativeEngineOptions& options,
                      int64_t running, bool evaluates);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_MEMORY_H_
