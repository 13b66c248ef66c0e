#ifndef FRESHET_TESTS_CONTRACT_WEIGHT_VERSION_H_
#define FRESHET_TESTS_CONTRACT_WEIGHT_VERSION_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "datastore/trajectory_store.h"
#include "weights/manifest.h"

namespace freshet {

// Returns `size` bytes that differ for each seed.
inline WeightBytes PatternBytes(int64_t size, uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(RandomBits(seed, i / 8) >> (8 * (i % 8)) & 0xFF);
  }
  return MakeWeightBytes(std::move(bytes));
}

// Returns `bytes` with one bit flipped in the byte at `index`.
inline WeightBytes Torn(const WeightBytes& bytes, size_t index) {
  std::vector<std::byte> torn(bytes->begin(), bytes->end());
  torn[index] ^= std::byte{0x80};
  return MakeWeightBytes(std::move(torn));
}

// A version and the receipt of its commit.
struct VersionForTest {
  WeightManifest manifest;
  WeightBytes bytes;
  CommitReceipt receipt;

  CommittedWeights Committed() const { return {{manifest, bytes}, receipt}; }
};
inline VersionForTest MakeVersion(PolicyVersion policy, int64_t epoch, int64_t size,
                                  int64_t bucket_bytes) {
  VersionForTest version;
  version.bytes = PatternBytes(size, static_cast<uint64_t>(policy.version + 1));
  version.manifest.policy = policy;
  version.manifest.epoch = epoch;
  version.manifest.entries = {{"all", "U8", {size}, 0}};
  HashBuckets(*version.bytes, bucket_bytes, version.manifest);
  version.receipt = {policy, epoch, policy.version, version.manifest.content_hash, "digest"};
  return version;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_WEIGHT_VERSION_H_
