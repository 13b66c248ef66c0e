#ifndef FRESHET_MODEL_HEAD_LOGPROBS_H_
#define FRESHET_MODEL_HEAD_LOGPROBS_H_

#include <cstdint>

#include "model/torch.h"

namespace freshet {

enum class Entropy { kNone, kValue, kDifferentiable };

// Shape legend: R rows, H hidden, V vocabulary, M targets.
struct TargetLogprobs {
  at::Tensor logprobs_M;   // fp32
  at::Tensor entropies_M;  // fp32, nats, of the distributions at the targets; undefined with kNone
};

// Log-probs of targets under softmax(hidden_RH lm_head_VH^T / temperature). Target i is token
// target_ids_M[i] at row target_rows_M[i]; both int64. Logits have the head's type and are rounded
// to it; the rest is fp32.
//
// Differentiable in hidden_RH (fp32) and lm_head_VH. Only HeadChunkBytes of logits exist at a time:
// the forward pass takes some rows at a time; the backward pass computes logits again, for a part
// of the vocabulary at a time (Wijmans et al. 2024, arXiv:2411.09009, section 4, with chunks in
// place of blocks).
//
// `head_gradients_VH` (fp32) saves the memory of a whole gradient: unless it is undefined, the
// backward pass adds the head's gradient to it, once to each element, and returns none for
// lm_head_VH. The sum has the same bits as if autograd had added the gradient.
TargetLogprobs HeadLogprobs(const at::Tensor& hidden_RH, const at::Tensor& lm_head_VH,
                            const at::Tensor& target_rows_M, const at::Tensor& target_ids_M,
                            double temperature, Entropy entropy,
                            const at::Tensor& head_gradients_VH = {});

}  // namespace freshet

#endif  // FRESHET_MODEL_HEAD_LOGPROBS_H_
