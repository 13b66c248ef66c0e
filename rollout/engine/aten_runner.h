#ifndef FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
#define FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_

#include <memory>
#include <vector>

#include "model/transformer.h"
#include "rollout/engine/model_runner.h"

namespace freshet {

// Computes with ATen, with the trainer's Transformer: the reference for other runners. Attention
// runs on the calling thread. Rows are padded to multiples of kMinRows, so that ATen's products of
// a row do not depend on the batch.
class AtenRunner final : public ModelRunner {
 public:
  // With `bf16`, weights are as those of CastWeights.
  AtenRunner(const ModelConfig& config, bool bf16);
  void LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) override;
  const float* Run(Lane lane, const EngineBatch& batch, KvCache& cache) override;

 private:
  const bool bf16_;
  const ParameterLayout layout_;
  const Transformer transformer_;
  TransformerWeights lanes_[kNumLanes];
  at::Tensor logits_;  // of the batch's wanted rows, fp32 [wants, V]
  std::vector<float> scratch_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ATEN_RUNNER_H_
