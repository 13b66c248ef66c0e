#ifndef FRESHET_DATASTORE_BLOB_CURATION_BLOB_H_
#define FRESHET_DATASTORE_BLOB_CURATION_BLOB_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "datastore/curation_state.h"

namespace freshet {

constexpr int64_t kMaxCurationBytes = int64_t{64} << 20;         // of a record
constexpr int64_t kMaxSuccessBytes = kMaxCurationBytes / 4 * 3;  // the rest is for histories
constexpr int64_t kMaxCurationText = 1024;                       // bytes of a key or uid

struct EncodedCuration {
  std::string record;    // at most kMaxCurationBytes
  int64_t left_out = 0;  // successes for which there was no room, also before it was encoded
};
// A CurationState as one record, like those of trajectory_blob.h:
//
//   byte 0     format version, 1
//   byte 1     kind, 4
//   min_reward of the histories
//   successes  by key: key, uid, records of response and score. Versions are those of the response
//   histories  of rows, then of tasks, by key: key, successes, samples, longest
//   last 8     XXH3-64 of all preceding bytes
//
// Texts and records are preceded by their size, lists by their count. Pure: thread-safe.
EncodedCuration EncodeCuration(const CurationState& state,
                               int64_t max_success_bytes = kMaxSuccessBytes);

// PooledSuccess::oldest is 0; response and score are not null, but otherwise as they were written.
// DATA_LOSS: not a record that EncodeCuration produced: another version or kind, a wrong checksum,
// a count or size beyond a limit, keys out of order, missing or extra bytes. Memory is bounded by a
// small multiple of the record.
absl::StatusOr<CurationState> DecodeCuration(std::string_view record);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_BLOB_CURATION_BLOB_H_
