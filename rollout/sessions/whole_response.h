#ifndef FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_
#define FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "datastore/trajectory.h"

namespace freshet {

// Appends ids that were not sampled: loss mask 0 and log-prob 0. They belong to the last span, if
// there is one.
void AppendWithoutLoss(const std::vector<int32_t>& ids, Response& response);

// A response that begins with a prompt of its own, which has no loss and belongs to the first span.
Response WithPrompt(const std::vector<int32_t>& prompt, const Response& after);

// Seed of the random numbers of a sample's segment number `segment`. Random numbers depend on the
// position in a segment, so segments with the same seed would sample alike.
uint64_t SegmentSeed(uint64_t seed, size_t segment);

// One response of all `segments`, which are whole responses and at least one; finish and env_reward
// are the last one's. A single one stays as it is.
Response JoinSegments(std::vector<Response> segments);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_
