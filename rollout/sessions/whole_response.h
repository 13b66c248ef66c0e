#ifndef FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_
#define FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory.h"

namespace freshet {

// Appends ids that were not sampled: loss mask 0 and log-prob 0. They belong to the last span, if
// there is one.
void AppendWithoutLoss(const std::vector<int32_t>& ids, Response& response);

// A response that begins with a prompt of its own, which has no loss and belongs to the first span.
Response WithPrompt(const std::vector<int32_t>& prompt, const Response& after);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_WHOLE_RESPONSE_H_
