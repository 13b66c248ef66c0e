#ifndef FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_
#define FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory.h"

namespace freshet {

// Tokens [begin, end) of a response, and what followed from them.
struct Turn {
  int32_t begin = 0;
  int32_t end = 0;
  double value = 0;  // discounted sum of the rewards from this turn on
  bool operator==(const Turn&) const = default;
};

// Divides a response of `tokens` tokens, at least 1, into the steps of its score and what follows
// the last of them. With v_k the reward of turn k of n, the value of turn k is
// sum_{j >= k} discount^(j - k) * v_j; v_n includes the part of the score that belongs to no step.
// Thus the first value is the score's reward if discount is 1. Steps beyond the response count as
// its end. Pure.
std::vector<Turn> TurnReturns(const Score& score, int32_t tokens, double discount);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_TURN_RETURNS_H_
