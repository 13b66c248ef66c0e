#ifndef FRESHET_MODEL_PACKED_FORWARD_H_
#define FRESHET_MODEL_PACKED_FORWARD_H_

#include "model/head_logprobs.h"
#include "model/packed_batch.h"
#include "model/transformer.h"

namespace freshet {

// Differentiable forward of a packed batch, with gradients for the weights that require them.
// Weights and model are on one device.
// Logits are divided by `temperature` (> 0), so that log-probs match an engine that sampled at that
// temperature. Entropy::kNone leaves entropies_M undefined. Bitwise deterministic for a fixed
// thread count, on a GPU only in LibTorch's deterministic mode. The targets of the result have the
// batch's order. `recompute`: see Transformer; the model must outlive the backward pass.
TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute = false);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_FORWARD_H_
