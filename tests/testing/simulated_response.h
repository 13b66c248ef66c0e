#ifndef FRESHET_TESTS_TESTING_SIMULATED_RESPONSE_H_
#define FRESHET_TESTS_TESTING_SIMULATED_RESPONSE_H_

#include <cstdint>

#include "datastore/trajectory.h"

namespace freshet {

// Finishes `response` with one token of the version `first`, at its lease, and one of `last`.
inline Response FinishAcross(Response response, int64_t first, int64_t last) {
  for (const int64_t version : {first, last}) {
    const auto at = static_cast<int32_t>(response.response_ids.size());
    response.response_ids.push_back(5);
    response.behavior_logprobs.push_back(-1);
    response.loss_mask.push_back(1);
    response.spans.push_back({{0, version}, at, at + 1});
  }
  response.finish = FinishReason::kStop;
  return response;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_SIMULATED_RESPONSE_H_
