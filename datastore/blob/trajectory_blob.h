#ifndef FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_
#define FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory.h"

namespace freshet {

// Binary records of the values that a store keeps outside its process: one value, one record.
//
//   byte 0     format version: 2 for a response with sampling_logprobs, else 1
//   byte 1     kind: 1 response, 2 prompt, 3 score, 4 floats
//   columns    little-endian, each preceded by its count where it has one
//   last 8     XXH3-64 of all bytes before
//
// A response costs 8 1/8 bytes a token: int32 id, fp32 log-prob, one bit of loss mask; and 4 more
// where it has sampling_logprobs, which come last. Its columns may differ in length (they are
// written with their own counts); a store checks them by CheckResponse. Values come back bit for
// bit, NaN included.
//
// Encode never fails for values within the limits below; beyond them it gives INVALID_ARGUMENT.
// Decode gives DATA_LOSS for any record that Encode did not make: another version or kind, a wrong
// checksum, a count beyond a limit, bytes missing or left over. Memory used is bounded by a small
// multiple of the record's size.
// Pure functions: thread-safe.
constexpr int64_t kMaxBlobTokens = int64_t{1} << 24;      // entries of one column
constexpr int64_t kMaxBlobSpans = int64_t{1} << 20;       // spans of a response
constexpr int64_t kMaxBlobTextBytes = int64_t{16} << 20;  // one key or value of a text map
constexpr int64_t kMaxBlobEntries = int64_t{1} << 16;     // entries of a map

absl::StatusOr<std::string> EncodeResponse(const Response& response);
// The record behind what `blob` holds; several records lie in one piece that way. An error leaves
// `blob` as it was.
absl::Status AppendResponse(const Response& response, std::string& blob);
absl::StatusOr<Response> DecodeResponse(std::string_view blob);

absl::StatusOr<std::string> EncodePrompt(const Prompt& prompt);
absl::StatusOr<Prompt> DecodePrompt(std::string_view blob);

absl::StatusOr<std::string> EncodeScore(const Score& score);
absl::StatusOr<Score> DecodeScore(std::string_view blob);

absl::StatusOr<std::string> EncodeFloats(const std::vector<float>& values);
absl::StatusOr<std::vector<float>> DecodeFloats(std::string_view blob);

// The checksum that ends the record, as 16 hex digits: the content's name in metadata.
// DATA_LOSS when the record is too short to have one. Does not verify it.
absl::StatusOr<std::string> BlobChecksum(std::string_view blob);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_BLOB_TRAJECTORY_BLOB_H_
