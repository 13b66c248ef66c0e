#ifndef FRESHET_MODEL_PACKED_FORWARD_H_
#define FRESHET_MODEL_PACKED_FORWARD_H_

#include "model/head_logprobs.h"
#include "model/packed_batch.h"
#include "model/transformer.h"

namespace freshet {

// Differentiable forward of a packed batch on the device of `weights`, which is the model's, with
// gradients for all of them that require one.
// Logits are divided by `temperature` (> 0), so that log-probs match an engine that sampled at that
// temperature. Entropy::kNone leaves entropies_M undefined. On the CPU bitwise deterministic for a
// fixed thread count. The targets of the result have the batch's order. `recompute`: see
// Transformer; the model must outlive the backward pass.
TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute = false);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_FORWARD_H_
