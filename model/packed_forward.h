#ifndef FRESHET_MODEL_PACKED_FORWARD_H_
#define FRESHET_MODEL_PACKED_FORWARD_H_

#include "model/packed_batch.h"
#include "model/transformer.h"

namespace freshet {

// What a packed forward gives for the targets of a PackedBatch, in its order.
struct TargetLogprobs {
  at::Tensor logprobs_M;   // fp32 log p(target) at the given temperature, nats
  at::Tensor entropies_M;  // fp32 entropy of the distribution that each target was drawn from
};

// Whether entropies are wanted, and whether gradients flow through them.
enum class Entropy { kNone, kValue, kDifferentiable };

// Differentiable forward of a packed batch; gradients reach whatever in `weights` requires them.
// Logits are divided by `temperature` (> 0), so that log-probs compare with what an engine sampled
// at that temperature. Entropy::kNone leaves entropies_M undefined.
// Deterministic for one thread count: the same batch gives the same bits.
TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_FORWARD_H_
