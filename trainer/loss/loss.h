#ifndef FRESHET_TRAINER_LOSS_LOSS_H_
#define FRESHET_TRAINER_LOSS_LOSS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "job/loss_spec.h"
#include "model/torch.h"
#include "trainer/loss/importance_ratio.h"

namespace freshet {

// Shape legend: N candidate tokens of a microbatch in packed order, interleaved with any number of
// masked ones; S sequences.

// Inputs of the loss of one microbatch. Tensors are 1-D with N entries on one device, floating
// point unless noted; log-probs are in nats at the sampling temperature. Entries with mask 0 may
// hold anything, including NaN and infinity: they affect neither values nor gradients. Gradients
// flow to logprobs_N and entropy_N only.
//
// A sequence whose tokens have the mask k has the loss and gradient of k equal sequences, but is in
// the sums of LossOutput once. Below, "mask 1" stands for every mask above 0.
struct LossInputs {
  at::Tensor logprobs_N;           // current policy
  at::Tensor proximal_logprobs_N;  // needed if spec.NeedsProximal(), else may be undefined
  at::Tensor behavior_logprobs_N;  // needed if spec.NeedsBehavior(), else may be undefined
  at::Tensor ref_logprobs_N;       // needed if spec.NeedsReference(), else may be undefined
  at::Tensor advantages_N;         // per token: its sample's advantage
  at::Tensor loss_mask_N;          // 0, or how often the token's sequence counts
  at::Tensor sequence_index_N;     // int64, 0 .. num_sequences - 1, also for masked tokens
  at::Tensor entropy_N;            // needed if spec.NeedsEntropy(), else may be undefined
  int64_t num_sequences = 0;       // S
};

// Denominators of the whole optimizer batch, the same for all its microbatches, so that the
// microbatch losses add up to the batch loss. A sequence is never split over microbatches.
struct LossNormalizer {
  double total_tokens = 0;  // tokens, each as often as it counts; used by token_mean
  // Sequences with sampled tokens, each as often as it counts; used by sequence_mean and
  // sequence_sum_norm.
  double total_sequences = 0;
  double max_tokens = 0;  // constant, the longest completion allowed; sequence_sum_norm
};

// Sums over the tokens with mask 1; they add up over microbatches.
struct LossOutput {
  at::Tensor loss;        // scalar to call backward on
  double loss_value = 0;  // the same as a number
  int64_t tokens = 0;
  int64_t clipped_tokens = 0;             // tokens whose loss is decided by the clip or dual clip
  double ratio_sum = 0;                   // r before clipping; 1 per token without anchor
  double kl_behavior_sum = 0;             // k3 estimate of KL(pi_b || pi_theta); 0 without pi_b
  double logprob_diff_sum = 0;            // |log pi_theta - log pi_b|; 0 without pi_b
  ImportanceRatios importance_ratios;     // pi_theta / pi_b; none without pi_b
  double kl_ref_sum = 0;                  // the configured estimate, without coef; 0 if no KL
  double correction_weight_sum = 0;       // w; 1 per token without correction
  int64_t correction_limited_tokens = 0;  // truncated or excluded by the correction
  double entropy_sum = 0;                 // 0 if entropy_N is undefined
};

// The policy loss of a microbatch:
//   loss = sum over tokens t of mask_t * g_t * (w_t * L_t + kl.coef * K_t - entropy_coef * H_t)
// Log-ratios are clamped to +-20 before exp, where their gradient is 0.
//
// Ratio r: exp(log pi_theta - log pi_anchor) of the token, or for ratio `sequence`
//   exp(mean over the sequence's tokens with mask 1 of that difference): GSPO, arXiv:2507.18071
//   eq. 7.
// Surrogate L, A the advantage, clip(x) = min(max(x, 1 - low), 1 + high):
//   ppo          max(-A * r, -A * clip(r)): arXiv:1707.06347 eq. 7; low != high: arXiv:2503.14476.
//                With clip.dual c and A < 0: min(that, -c * A), arXiv:1912.09729 section 3.3.
//   cispo        -A * stop_gradient(clip(r)) * log pi_theta: arXiv:2506.13585 section 3.1.
//   anchor none  -A * log pi_theta: REINFORCE.
// Correction w, constant for the gradient, rho = pi_p / pi_b: decoupled PPO, arXiv:2505.24298.
//   none     1
//   tis      min(max(rho, low), cap)
//   mask     rho if low <= rho <= cap, else 0: arXiv:2510.18855
//   seq_tis  tis with the product of rho over the sequence's tokens with mask 1
//   It weights the surrogate only. Excluded tokens still count in every denominator.
// KL K, d = log pi_ref - log pi_theta (J. Schulman, "Approximating KL Divergence", 2020):
//   k1 -d | k2 d^2 / 2 | k3 exp(d) - d - 1: GRPO, arXiv:2402.03300 eq. 4.
//   The gradient of k1 is 0 in expectation over on-policy tokens: as a loss term it only adds
//   noise.
// Aggregate g, n_i the tokens with mask 1 of the token's sequence:
//   token_mean         1 / total_tokens: arXiv:2503.14476 section 3.3
//   sequence_mean      1 / (total_sequences * n_i): arXiv:2402.03300 eq. 3
//   sequence_sum_norm  1 / (total_sequences * max_tokens): arXiv:2503.20783 section 3.2
//
// Computed in double if logprobs_N is double, else in float. A microbatch without tokens of mask 1
// has loss 0 and gradient 0. Records autograd; does not change its inputs. Thread-safe.
// Returns:
//   OK: loss and sums.
//   INVALID_ARGUMENT: a needed tensor is undefined or has another shape; a mask entry is no
//     whole number from 0 on; a sequence index is out of range; a denominator in use is not
//     positive and finite.
//   FAILED_PRECONDITION: a value at a token of mask 1 is not finite (the message names tensor,
//     token and sequence).
absl::StatusOr<LossOutput> PolicyLoss(const LossSpec& spec, const LossInputs& inputs,
                                      const LossNormalizer& normalizer);

struct SftOutput {
  at::Tensor loss;     // scalar to call backward on
  double nll_sum = 0;  // nats, over tokens with mask 1
  int64_t tokens = 0;  // with mask 1
};

// Supervised loss of a microbatch: -(sum of log-probs of the tokens with mask 1) / total_tokens,
// where total_tokens is that of the whole optimizer batch. Masked entries as in LossInputs. Errors
// as for PolicyLoss.
absl::StatusOr<SftOutput> SftLoss(const at::Tensor& logprobs_N, const at::Tensor& loss_mask_N,
                                  double total_tokens);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOSS_LOSS_H_
