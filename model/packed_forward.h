#ifndef FRESHET_MODEL_PACKED_FORWARD_H_
#define FRESHET_MODEL_PACKED_FORWARD_H_

#include <memory>

#include "model/head_logprobs.h"
#include "model/packed_batch.h"
#include "model/transformer.h"
#include "model/tree_attention.h"

namespace freshet {

// A packed batch as tensors on a model's device.
class PackedInputs {
 public:
  // `type`: of the model's matrices.
  PackedInputs(const PackedBatch& batch, at::Device device, at::ScalarType type);

  const at::Tensor& token_ids() const { return token_ids_N_; }
  const at::Tensor& positions() const { return positions_N_; }
  // `config`, of the model, must outlive the result.
  AttentionFn Attention(const ModelConfig& config) const;
  // Of the batch's targets; `hidden_NH`: after the last norm. The rest as for HeadLogprobs.
  TargetLogprobs Logprobs(const at::Tensor& hidden_NH, const at::Tensor& lm_head_VH,
                          double temperature, Entropy entropy,
                          const at::Tensor& head_gradients_VH = {}) const;

 private:
  std::shared_ptr<const TreeAttention> attention_;
  at::Tensor token_ids_N_, positions_N_, logit_rows_, target_logit_rows_, target_ids_;
};

// Differentiable forward of a packed batch, with gradients for the weights that require them.
// Weights and model are on one device.
// Logits are divided by `temperature` (> 0), so that log-probs match an engine that sampled at that
// temperature. Entropy::kNone leaves entropies_M undefined. Bitwise deterministic for a fixed
// thread count, on a GPU only in LibTorch's deterministic mode. The targets of the result have the
// batch's order. `recompute`: see Transformer; the model must outlive the backward pass.
// `head_gradients_VH`: see HeadLogprobs.
TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute = false, const at::Tensor& head_gradients_VH = {});

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_FORWARD_H_
