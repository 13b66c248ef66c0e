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
// Differentiable in hidden_RH (fp32) and lm_head_VH. Logits exist one chunk (HeadChunkSize) at a
// time: of rows in the forward pass, of the vocabulary in the backward pass, which computes them
// again (Wijmans et al. 2024, arXiv:2411.09009, section 4, with chunks in place of blocks).
//
// If `head_gradients_VH` (fp32) is defined, the backward pass adds the head's gradient to it and
// returns none for lm_head_VH, which saves the memory of that gradient. The sum has the bits that
// autograd's would have. No other thread may use it during the backward pass.
TargetLogprobs HeadLogprobs(const at::Tensor& hidden_RH, const at::Tensor& lm_head_VH,
                            const at::Tensor& target_rows_M, const at::Tensor& target_ids_M,
                            double temperature, Entropy entropy,
                            const at::Tensor& head_gradients_VH = {});

}  // namespace freshet

#endif  // FRESHET_MODEL_HEAD_LOGPROBS_H_
