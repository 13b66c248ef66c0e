#ifndef FRESHET_WEIGHTS_MANIFEST_H_
#define FRESHET_WEIGHTS_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/policy_version.h"
#include "weights/weight_arena.h"

namespace freshet {

class WeightShards;

// Location of one tensor in a version's arena.
struct WeightEntry {
  std::string name;
  std::string dtype;  // safetensors name: F32, BF16
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;
};

// Describes one version: tensor locations and a checksum per bucket of bytes.
struct WeightManifest {
  PolicyVersion policy;
  int64_t epoch = 0;  // trainer epoch that published it
  std::vector<WeightEntry> entries;
  int64_t total_bytes = 0;
  int64_t bucket_bytes = 0;
  std::vector<uint64_t> bucket_hashes;  // xxh3-64 per bucket; the last bucket may be shorter
  std::string content_hash;             // 16 hex digits: xxh3-64 over bucket_hashes, little-endian
};

// A version with its verified bytes.
struct WeightSnapshot {
  WeightManifest manifest;
  WeightBytes bytes;
};

// A verified, committed version with its receipt.
struct CommittedWeights {
  WeightSnapshot snapshot;
  CommitReceipt receipt;
  std::shared_ptr<WeightShards> shards = nullptr;  // of its publisher; null: it alone holds it
};

// Limits for untrusted manifests.
struct WeightLimits {
  int64_t max_bytes = int64_t{1} << 40;
  int64_t max_entries = 16'384;
  int64_t max_buckets = 131'072;  // 8 bytes each; keeps a manifest below 4 MiB
};

// Bytes per bucket of a version, at most 1/1024 of it from 16 MiB on. A relaying engine passes a
// bucket on once it has all of it, so the last of 128 engines has the version about 1/8 of the
// transfer time after the first, and the latency of 127 hops. Depends on the size alone: a step
// that is redone must give the same content hash whatever the members are. Changing it changes
// content hashes.
int64_t BucketBytes(int64_t total_bytes);

// Fills total_bytes, bucket_hashes and content_hash for `bytes`. Requires bucket_bytes > 0. Unless
// `copy` is null, copies the bytes there and hashes the copy while it is in the CPU's cache. Uses
// up to 8 threads.
void HashBuckets(std::span<const std::byte> bytes, int64_t bucket_bytes, WeightManifest& manifest,
                 std::byte* copy = nullptr);

// DATA_LOSS: the size differs from the manifest, or a bucket does; the message names the first one.
absl::Status VerifyBuckets(const WeightManifest& manifest, std::span<const std::byte> bytes);

// DATA_LOSS: `bytes` differ from bucket number `bucket` of the manifest.
absl::Status VerifyBucket(const WeightManifest& manifest, int64_t bucket,
                          std::span<const std::byte> bytes);

// Checks an untrusted manifest before any bytes are accepted: sizes, bounds, tensors within the
// arena, and the content hash over the bucket hashes. INVALID_ARGUMENT names the field.
absl::Status CheckManifest(const WeightManifest& manifest, const WeightLimits& limits);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_MANIFEST_H_
