#ifndef FRESHET_WEIGHTS_MANIFEST_H_
#define FRESHET_WEIGHTS_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/policy_version.h"
#include "weights/weight_arena.h"

namespace freshet {

// Where one tensor lies in the arena of a version.
struct WeightEntry {
  std::string name;
  std::string dtype;  // safetensors spelling: F32, BF16
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;
};

// Describes one version: what lies where, and the checksum of every bucket of bytes.
struct WeightManifest {
  PolicyVersion policy;
  int64_t epoch = 0;  // trainer epoch that published it
  std::vector<WeightEntry> entries;
  int64_t total_bytes = 0;
  int64_t bucket_bytes = 0;
  std::vector<uint64_t> bucket_hashes;  // xxh3-64 of each bucket; the last one may be shorter
  std::string content_hash;             // 16 hex digits: xxh3-64 over bucket_hashes, little-endian
};

// A version together with its bytes, verified.
struct WeightSnapshot {
  WeightManifest manifest;
  WeightBytes bytes;
};

// A verified version that was committed, with the receipt that proves it.
struct CommittedWeights {
  WeightSnapshot snapshot;
  CommitReceipt receipt;
};

// What a manifest from outside may ask for.
struct WeightLimits {
  int64_t max_bytes = int64_t{1} << 40;
  int64_t max_entries = 16'384;
  int64_t max_buckets = 131'072;  // with 8 bytes each, a manifest stays below 4 MiB
};

// Fills total_bytes, bucket_hashes and content_hash for `bytes`. bucket_bytes must be positive.
// `visit` is called with each bucket before it is hashed: what copies it there reads memory once.
void HashBuckets(std::span<const std::byte> bytes, int64_t bucket_bytes, WeightManifest& manifest,
                 const std::function<void(std::span<const std::byte>)>& visit = {});

// DATA_LOSS naming the first bucket whose bytes differ from the manifest, or the size.
absl::Status VerifyBuckets(const WeightManifest& manifest, std::span<const std::byte> bytes);

// DATA_LOSS when `bytes`, the bucket number `bucket`, differ from the manifest.
absl::Status VerifyBucket(const WeightManifest& manifest, int64_t bucket,
                          std::span<const std::byte> bytes);

// Checks a manifest from outside before any byte is taken: sizes, bounds, tensors within the arena,
// and the content hash over its bucket hashes. INVALID_ARGUMENT names the field.
absl::Status CheckManifest(const WeightManifest& manifest, const WeightLimits& limits);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_MANIFEST_H_
