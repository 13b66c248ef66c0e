#ifndef FRESHET_ROLLOUT_ENGINE_MODEL_RUNNER_H_
#define FRESHET_ROLLOUT_ENGINE_MODEL_RUNNER_H_

#include "base/thread_pool.h"
#include "model/dtype.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kv_block_pool.h"
#include "rollout/engine/phase_clock.h"
#include "weights/weight_arena.h"

namespace freshet {

// Forward passes of one model on one device, where its weights and its cache are: what an engine
// computes between EngineScheduler::Fill and Accept. Errors are exceptions (std::bad_alloc,
// c10::Error). Not thread-safe.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Replaces the lane's weights by the model's arena (ParameterLayout), kF32 or kBf16. A runner
  // that needs the bytes later shares them. A bf16 runner computes the same with either: it rounds
  // fp32. If it throws, the lane has no weights.
  virtual void LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) = 0;

  // Writes keys and values of the batch's tokens to the cache and returns the logits of the wanted
  // rows, fp32 [batch.wants.size()][num_outputs], valid until the next call; null if none are
  // wanted. The lane must have weights.
  virtual const float* Run(Lane lane, const EngineBatch& batch) = 0;

  virtual KvBlockPool& cache() = 0;

  // Threads of the CPU for what follows a pass.
  virtual ThreadPool& pool() = 0;

  // Where Run spends its time. In kOther after every call.
  PhaseClock& phases() { return phases_; }

 private:
  PhaseClock phases_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_MODEL_RUNNER_H_
