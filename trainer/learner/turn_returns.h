#ifndef FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_
#define FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory.h"

namespace freshet {

// Tokens [begin, end) of a response: an observation and the turn that follows it.
struct Turn {
  int32_t begin = 0;
  int32_t end = 0;
  double turn_return = 0;  // discounted sum of the rewards from this turn on
  bool operator==(const Turn&) const = default;
};

// Splits a response of `tokens` >= 1 tokens at the ends of score.step_rewards, and where its
// `segments` (as in Response) begin; tokens after the last end are a turn of their own. With r_j
// the reward of turn j of n, the return of turn k is
//   R_k = sum_{j >= k} discount^(j - k) * r_j;
// r_n includes the part of score.reward that belongs to no step. Ends beyond `tokens` count as
// `tokens`. Returns below 1e-12 of the summed magnitudes are exactly 0. Pure; thread-safe.
std::vector<Turn> TurnReturns(const Score& score, int32_t tokens, double discount,
                              const std::vector<int32_t>& segments = {});

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_
