#ifndef FRESHET_DATASTORE_RESPONSE_CHECK_H_
#define FRESHET_DATASTORE_RESPONSE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "datastore/trajectory.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Constraints on a response in addition to its own shape.
struct ResponseBounds {
  int64_t min_version = 0;   // the group's min version; no span may be older
  int64_t root_lineage = 0;  // no span may have an older lineage
  PolicyVersion committed;   // no span may have a newer lineage or a larger version
  // A finished sample: requires at least one loss-bearing token, or none with kNotAsked.
  bool needs_loss = true;
};

// Checks that a response has at least one token; that ids are >= 0; that every column has one entry
// per token (sampling_logprobs may be empty); that log-probs are finite and mask entries 0 or 1;
// that the spans cover all tokens in order without gaps, with lineages and versions within `bounds`
// that do not decrease within a segment; and that there are at most kMaxSegments segments, none in
// an unfinished response, each of which begins with a token without loss and has one with loss. (An
// engine that swaps from (L, V) to (L + 1, W) between two tokens has W >= V.)
// INVALID_ARGUMENT: the message names the column, the value and the bound. Pure; shared by all
// backends. Thread-safe.
absl::Status CheckResponse(const Response& response, const ResponseBounds& bounds);

// INVALID_ARGUMENT unless `sample` has a response and its index is within the group.
absl::Status CheckSamplePut(const SamplePut& sample, int32_t group_size);

// INVALID_ARGUMENT unless a worker may end a row's lease this way: kFailed or kReturned.
absl::Status CheckRowEnd(int64_t token, RowEnd end);

// INVALID_ARGUMENT unless `score` is not null, its outcome is not kInfraError and its reward is
// finite.
absl::Status CheckScore(const Score* score);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_RESPONSE_CHECK_H_
