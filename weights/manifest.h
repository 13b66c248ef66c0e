#ifndef FRESHET_WEIGHTS_MANIFEST_H_
#define FRESHET_WEIGHTS_MANIFEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "datastore/trajectory.h"

namespace freshet {

// Where one tensor lies in the arena of a version.
struct WeightEntry {
  std::string name;
  std::string dtype;  // safetensors spelling: F32, BF16
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;
};

// The bytes of one version of the weights; immutable once published. Owned by whoever holds it.
using WeightBytes = std::shared_ptr<const std::vector<std::byte>>;

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

// Fills total_bytes, bucket_hashes and content_hash for `bytes`. bucket_bytes must be positive.
void HashBuckets(const std::vector<std::byte>& bytes, int64_t bucket_bytes,
                 WeightManifest& manifest);

// DATA_LOSS naming the first bucket whose bytes differ from the manifest, or the size.
absl::Status VerifyBuckets(const WeightManifest& manifest, const std::vector<std::byte>& bytes);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_MANIFEST_H_
