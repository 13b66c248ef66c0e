#ifndef FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_
#define FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory.h"

namespace freshet {

// Binary records of values that a store keeps outside its process: one value per record.
//
//   byte 0     format version: 4 for a response with segments, 3 with step_rewards, 2 for a
//              response with sampling_logprobs, otherwise 1
//   byte 1     kind: 1 response, 2 prompt, 3 score
//   columns    little-endian, each preceded by its count if it has one
//   last 8     XXH3-64 of all preceding bytes
//
// A response takes 8 1/8 bytes per token (int32 id, fp32 log-prob, one bit of loss mask), plus 4 if
// it has sampling_logprobs, 12 bytes per step reward and 4 per segment; these come last, in this
// order. Columns
// may differ in length; a store checks them with CheckResponse. Values round-trip exactly,
// including NaN.
//
// Encode: INVALID_ARGUMENT for values beyond the limits below.
// Decode: DATA_LOSS for records that Encode did not produce: another version or kind, a wrong
// checksum, a count beyond a limit, missing or extra bytes. Memory is bounded by a small multiple
// of the record. Pure functions: thread-safe.
constexpr int64_t kMaxBlobTokens = int64_t{1} << 24;      // entries per column
constexpr int64_t kMaxBlobSpans = int64_t{1} << 20;       // spans per response
constexpr int64_t kMaxBlobTextBytes = int64_t{16} << 20;  // per key or value of a text map
constexpr int64_t kMaxBlobEntries = int64_t{1} << 16;     // entries per map

absl::StatusOr<std::string> EncodeResponse(const Response& response);
// Appends the record to `blob`. On error, `blob` is unchanged.
absl::Status AppendResponse(const Response& response, std::string& blob);
absl::StatusOr<Response> DecodeResponse(std::string_view blob);

absl::StatusOr<std::string> EncodePrompt(const Prompt& prompt);
absl::StatusOr<Prompt> DecodePrompt(std::string_view blob);

absl::StatusOr<std::string> EncodeScore(const Score& score);
absl::StatusOr<Score> DecodeScore(std::string_view blob);

// The record's checksum as 16 hex digits, used as the content's name in metadata. Does not verify
// it. DATA_LOSS: the record is too short.
absl::StatusOr<std::string> BlobChecksum(std::string_view blob);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_
