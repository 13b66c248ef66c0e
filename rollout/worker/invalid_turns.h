#ifndef FRESHET_ROLLOUT_WORKER_INVALID_TURNS_H_
#define FRESHET_ROLLOUT_WORKER_INVALID_TURNS_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory.h"

namespace freshet {

// Takes the loss from `turns`, in ascending order. If no token of the response would bear loss, the
// last of them keeps it, because a sample needs at least one such token. Log-probs and spans stay
// as they are. Pure.
void MaskTurns(const std::vector<TokenRange>& turns, Response& response);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_INVALID_TURNS_H_
