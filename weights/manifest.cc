#include "weights/manifest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/digest.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"

namespace freshet {
namespace {

constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxRank = 16;
// A thread copies and hashes about 7 GB/s, so a few reach what memory delivers. One does it if the
// bytes take it less time than threads need to start.
constexpr int64_t kMaxThreads = 8;
constexpr size_t kThreadBytes = size_t{8} << 20;

std::span<const std::byte> Bucket(std::span<const std::byte> bytes, int64_t bucket_bytes,
                                  int64_t bucket) {
  const auto begin = static_cast<size_t>(bucket * bucket_bytes);
  return bytes.subspan(begin, std::min(static_cast<size_t>(bucket_bytes), bytes.size() - begin));
}

std::string ContentHash(const std::vector<uint64_t>& bucket_hashes) {
  return Hex64(Xxh3(bucket_hashes.data(), bucket_hashes.size() * sizeof(uint64_t)));
}

int64_t NumBuckets(int64_t total_bytes, int64_t bucket_bytes) {
  return total_bytes / bucket_bytes + (total_bytes % bucket_bytes == 0 ? 0 : 1);
}

// The hash of each bucket; those of `copy` after copying the bytes there, unless it is null.
std::vector<uint64_t> Hashes(std::span<const std::byte> bytes, int64_t bucket_bytes,
                             std::byte* copy) {
  const int64_t buckets = NumBuckets(static_cast<int64_t>(bytes.size()), bucket_bytes);
  std::vector<uint64_t> hashes(static_cast<size_t>(buckets));
  const int64_t threads = std::min({int64_t{std::thread::hardware_concurrency()}, kMaxThreads,
                                    static_cast<int64_t>(bytes.size() / kThreadBytes)});
  ThreadPool pool(static_cast<int>(std::max(threads, int64_t{1})));
  pool.For(buckets, [&](int64_t b, int) {
    std::span<const std::byte> bucket = Bucket(bytes, bucket_bytes, b);
    if (copy != nullptr) {
      std::byte* to = copy + b * bucket_bytes;
      std::memcpy(to, bucket.data(), bucket.size());
      bucket = {to, bucket.size()};
    }
    hashes[static_cast<size_t>(b)] = Xxh3(bucket.data(), bucket.size());
  });
  return hashes;
}

absl::Status CheckHash(const WeightManifest& manifest, int64_t bucket, uint64_t hash) {
  if (hash == manifest.bucket_hashes[static_cast<size_t>(bucket)]) return absl::OkStatus();
  return DataLoss("weights of version ", manifest.policy.version, ": bucket ", bucket, " of ",
                  manifest.bucket_hashes.size(), " differs from the manifest");
}

// Bytes per element; 0 for an unknown dtype.
int64_t ItemBytes(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    int64_t bytes;
  } kTypes[] = {{"F64", 8},     {"I64", 8},     {"U64", 8}, {"F32", 4}, {"I32", 4},
                {"U32", 4},     {"BF16", 2},    {"F16", 2}, {"I16", 2}, {"U16", 2},
                {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [dtype](const auto& type) { return type.name == dtype; });
  return found == std::end(kTypes) ? 0 : found->bytes;
}

absl::Status CheckEntry(const WeightEntry& entry, int64_t total_bytes) {
  if (entry.name.empty() || entry.name.size() > kMaxNameBytes) {
    return InvalidArgument("manifest: a tensor's name has ", entry.name.size(), " bytes, not 1 to ",
                           kMaxNameBytes);
  }
  const int64_t item = ItemBytes(entry.dtype);
  if (item == 0) {
    return InvalidArgument("manifest: tensor '", entry.name, "' has an unknown dtype");
  }
  if (entry.shape.size() > kMaxRank) {
    return InvalidArgument("manifest: tensor '", entry.name, "' has ", entry.shape.size(),
                           " dimensions, at most ", kMaxRank);
  }
  const int64_t room = total_bytes - entry.offset_bytes;
  int64_t bytes = item;
  bool fits = entry.offset_bytes >= 0 && room >= 0;
  for (const int64_t dimension : entry.shape) {
    fits = fits && dimension >= 0 && !__builtin_mul_overflow(bytes, dimension, &bytes);
  }
  if (!fits || bytes > room) {
    return InvalidArgument("manifest: tensor '", entry.name, "' at offset ", entry.offset_bytes,
                           " does not lie within the ", total_bytes, " bytes of the version");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t BucketBytes(int64_t total_bytes) {
  // Smaller ones cost more in calls than they save; larger ones would save hashes only.
  constexpr uint64_t kSmallest = 16 << 10;
  constexpr uint64_t kLargest = 4 << 20;
  constexpr int64_t kBuckets = 1024;
  const auto part = static_cast<uint64_t>(std::max<int64_t>(total_bytes, 0) / kBuckets);
  return static_cast<int64_t>(std::clamp(std::bit_floor(part), kSmallest, kLargest));
}

void HashBuckets(std::span<const std::byte> bytes, int64_t bucket_bytes, WeightManifest& manifest,
                 std::byte* copy) {
  FRESHET_CHECK(bucket_bytes > 0);
  manifest.total_bytes = static_cast<int64_t>(bytes.size());
  manifest.bucket_bytes = bucket_bytes;
  manifest.bucket_hashes = Hashes(bytes, bucket_bytes, copy);
  manifest.content_hash = ContentHash(manifest.bucket_hashes);
}

absl::Status VerifyBucket(const WeightManifest& manifest, int64_t bucket,
                          std::span<const std::byte> bytes) {
  return CheckHash(manifest, bucket, Xxh3(bytes.data(), bytes.size()));
}

absl::Status VerifyBuckets(const WeightManifest& manifest, std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) != manifest.total_bytes || manifest.bucket_bytes <= 0) {
    return DataLoss("weights of version ", manifest.policy.version, ": ", bytes.size(),
                    " bytes, the manifest says ", manifest.total_bytes);
  }
  const int64_t buckets = NumBuckets(manifest.total_bytes, manifest.bucket_bytes);
  if (buckets != static_cast<int64_t>(manifest.bucket_hashes.size())) {
    return DataLoss("weights of version ", manifest.policy.version, ": the manifest lists ",
                    manifest.bucket_hashes.size(), " buckets, its sizes make ", buckets);
  }
  const std::vector<uint64_t> hashes = Hashes(bytes, manifest.bucket_bytes, nullptr);
  for (int64_t b = 0; b < buckets; ++b) {
    FRESHET_RETURN_IF_ERROR(CheckHash(manifest, b, hashes[static_cast<size_t>(b)]));
  }
  if (ContentHash(manifest.bucket_hashes) != manifest.content_hash) {
    return DataLoss("weights of version ", manifest.policy.version, ": content hash differs");
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const WeightManifest& manifest, const WeightLimits& limits) {
  if (manifest.policy.lineage < 0 || manifest.policy.version < 0 || manifest.epoch < 0) {
    return InvalidArgument("manifest: a negative lineage, version or epoch");
  }
  if (manifest.total_bytes < 0 || manifest.total_bytes > limits.max_bytes) {
    return InvalidArgument("manifest: total_bytes is ", manifest.total_bytes, ", not 0 to ",
                           limits.max_bytes);
  }
  if (manifest.bucket_bytes <= 0) {
    return InvalidArgument("manifest: bucket_bytes is ", manifest.bucket_bytes,
                           ", must be positive");
  }
  const int64_t buckets = NumBuckets(manifest.total_bytes, manifest.bucket_bytes);
  if (buckets > limits.max_buckets ||
      buckets != static_cast<int64_t>(manifest.bucket_hashes.size())) {
    return InvalidArgument("manifest: ", manifest.bucket_hashes.size(),
                           " bucket hashes; its sizes make ", buckets, " buckets, at most ",
                           limits.max_buckets);
  }
  if (ContentHash(manifest.bucket_hashes) != manifest.content_hash) {
    return InvalidArgument("manifest: content_hash is not that of its buckets");
  }
  if (static_cast<int64_t>(manifest.entries.size()) > limits.max_entries) {
    return InvalidArgument("manifest: ", manifest.entries.size(), " tensors, at most ",
                           limits.max_entries);
  }
  for (const WeightEntry& entry : manifest.entries) {
    FRESHET_RETURN_IF_ERROR(CheckEntry(entry, manifest.total_bytes));
  }
  return absl::OkStatus();
}

}  // namespace freshet
