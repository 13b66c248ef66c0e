#ifndef FRESHET_DATASTORE_RESPONSE_CHECK_H_
#define FRESHET_DATASTORE_RESPONSE_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "datastore/trajectory.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// What a response must fulfil besides its own shape.
struct ResponseBounds {
  int64_t min_version = 0;   // no span is older than its group's min version
  int64_t root_lineage = 0;  // no span is of an older lineage
  PolicyVersion committed;   // no span is of a newer lineage, or of a larger version than this
  bool needs_loss = true;    // at least one token bears loss (a finished sample)
};

// INVALID_ARGUMENT naming the column, the value and the bound unless: there is at least one token,
// ids are >= 0, every column has one entry per token (sampling_logprobs may have none), log-probs
// are finite, the mask is 0 or 1, and the spans cover all tokens in order without gaps, with
// lineages and versions that do not decrease and keep `bounds`. An engine that swaps from (L, V) to
// (L + 1, W) between two tokens has W >= V. A pure function, used by every backend. Thread-safe.
absl::Status CheckResponse(const Response& response, const ResponseBounds& bounds);

// INVALID_ARGUMENT unless `sample` has a response and its index is one of a group's.
absl::Status CheckSamplePut(const SamplePut& sample, int32_t group_size);

// INVALID_ARGUMENT unless `score` is there (not null), of another outcome than kInfraError, and
// its reward finite.
absl::Status CheckScore(const Score* score);
// INVALID_ARGUMENT unless `ref_logprobs` is there (not null), has `num_tokens` entries, and all are
// finite.
absl::Status CheckRefLogprobs(const std::vector<float>* ref_logprobs, int64_t num_tokens);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_RESPONSE_CHECK_H_
