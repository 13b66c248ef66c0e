#ifndef FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
#define FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_

#include "model/transformer.h"
#include "rollout/engine/aten_kv_cache.h"
#include "rollout/engine/model_runner.h"

namespace freshet {

// Computes with ATen on a CPU or GPU, with the trainer's Transformer: the reference for other
// runners. The last bits of a row may depend on the batch.
class AtenRunner final : public ModelRunner {
 public:
  // With `bf16`, weights are as those of WidenVectors, and the cache is bf16. Throws c10::Error.
  AtenRunner(const ModelConfig& config, bool bf16, at::Device device, int64_t cache_blocks);
  void LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) override;
  const float* Run(Lane lane, const EngineBatch& batch) override;
  KvBlockPool& cache() override { return cache_; }

 private:
  const bool bf16_;
  const at::Device device_;
  const ParameterLayout layout_;
  const Transformer transformer_;
  AtenKvCache cache_;
  TransformerWeights lanes_[kNumLanes];
  at::Tensor logits_;  // of the batch's wanted rows, fp32 [wants, V], on the CPU
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
