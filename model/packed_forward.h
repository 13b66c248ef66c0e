#ifndef FRESHET_MODEL_PACKED_FORWARD_H_
#define FRESHET_MODEL_PACKED_FORWARD_H_

#include "model/packed_batch.h"
#include "model/transformer.h"

namespace freshet {

// Output of a packed forward for the targets of a PackedBatch, in order.
struct TargetLogprobs {
  at::Tensor logprobs_M;   // fp32 log p(target) at the given temperature, nats
  at::Tensor entropies_M;  // fp32 entropy of the distribution that predicts each target
};

// Whether to compute entropies, and whether gradients flow through them.
enum class Entropy { kNone, kValue, kDifferentiable };

// Differentiable forward of a packed batch, with gradients for all `weights` that require them.
// Logits are divided by `temperature` (> 0), so that log-probs match an engine that sampled at that
// temperature. Entropy::kNone leaves entropies_M undefined. Bitwise deterministic for a fixed
// thread count.
TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_FORWARD_H_
