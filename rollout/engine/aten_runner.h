#ifndef FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
#define FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_

#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>

#include "model/transformer.h"
#include "rollout/engine/aten_kv_cache.h"
#include "rollout/engine/cuda_decoder.h"
#include "rollout/engine/model_runner.h"

namespace freshet {

// Computes with ATen on a CPU or GPU, with the trainer's Transformer: the reference for other
// runners. The last bits of a row may depend on the batch. On a GPU it has its own stream, and
// CudaDecoder computes decoding steps where it can.
class AtenRunner final : public ModelRunner {
 public:
  // With `bf16`, weights are as those of WidenVectors, and the cache is bf16. Throws c10::Error.
  AtenRunner(const ModelConfig& config, bool bf16, at::Device device, int64_t cache_blocks,
             int64_t max_sequences, int threads);
  void LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) override;
  const float* Run(Lane lane, const EngineBatch& batch) override;
  KvBlockPool& cache() override { return cache_; }
  ThreadPool& pool() override { return pool_; }

 private:
  // On a GPU a lane's tensors keep their addresses.
  struct LaneWeights {
    at::Tensor flat;
    TransformerWeights weights;
  };
  at::Tensor Hidden(const TransformerWeights& weights, const EngineBatch& batch);
  const float* ToHost(const at::Tensor& logits);

  ThreadPool pool_;
  const bool bf16_;
  const at::Device device_;
  const std::optional<c10::Stream> stream_;  // none on the CPU
  const ParameterLayout layout_;
  const Transformer transformer_;
  AtenKvCache cache_;
  std::unique_ptr<CudaDecoder> decoder_;  // may be null
  LaneWeights lanes_[kNumLanes];
  at::Tensor logits_;  // fp32 [rows, V] in host memory, with room for the most rows so far
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
