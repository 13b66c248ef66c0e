#ifndef FRESHET_TRAINER_LEARNER_LOSS_SELECTION_H_
#define FRESHET_TRAINER_LEARNER_LOSS_SELECTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "job/loss_spec.h"

namespace freshet {

class Tokenizer;
struct TrainingRows;

// What the rules of SelectLossTokens did to a step.
struct LossSelection {
  double sampled_entropy = 0;   // nats per token, before the rules
  int64_t masked_turns = 0;     // by turn_entropy_share
  int64_t masked_samples = 0;   // by entropy_control
  int64_t masked_tokens = 0;    // by either
  int64_t weighted_tokens = 0;  // loss-bearing tokens of a part in token_weights
};

// Applies spec's turn_entropy_share, entropy_control and token_weights to the loss masks and
// advantages of a whole step's rows, as MakeTrainingRows returns them. Pure: equal rows become
// equal rows.
//
// A sample with several conversations counts once, with the tokens of all of them. The order of
// turns is that of trees and tokens, the order of samples that of the groups.
//
// A turn is a run of tokens that the policy wrote, of which at least one bears loss. The entropy of
// a turn or sample is the mean of -log pi_b over its loss-bearing tokens: of a token drawn from
// pi_b, -log pi_b is an unbiased estimate of the entropy there.
//
// turn_entropy_share: of a group's n turns, the ceil(share * n) with the highest entropy keep their
//   loss; among equal ones the first in the order of samples and tokens. So one turn of a group
//   does, but not one of each sample. "Step-wise high entropy" of DART, arXiv:2509.23866; for
//   tokens arXiv:2506.01939.
// entropy_control: H is the mean over samples of their entropy (arXiv:2512.12967 eq. 11). Of the
//   samples whose mean advantage is negative, the share clamp((H - low) / (high - low), 0, 1)
//   loses its loss, rounded half up, those with the highest entropy first, then in the order of
//   samples. At and above `high` it is AEPO (section 4.4 there), which between the bounds goes on
//   as before; here the rule depends on the step's samples only, so that a repeated step is equal.
//   Masking samples of high entropy first is its section 4.3 (equation 9, table 4).
// Both take their entropies from the masks as given, and a token masked by either bears no loss.
// They may leave no token with a loss.
// token_weights: see token_weights.h.
//
// INVALID_ARGUMENT: token_weights without a tokenizer.
absl::StatusOr<LossSelection> SelectLossTokens(const LossSpec& spec, const Tokenizer* tokenizer,
                                               TrainingRows& rows);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LOSS_SELECTION_H_
