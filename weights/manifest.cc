#include "weights/manifest.h"

#include <algorithm>

#include "services/base/digest.h"
#include "services/base/log.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

uint64_t BucketHash(const std::vector<std::byte>& bytes, int64_t bucket_bytes, int64_t bucket) {
  const int64_t begin = bucket * bucket_bytes;
  const int64_t size = std::min(bucket_bytes, static_cast<int64_t>(bytes.size()) - begin);
  return Xxh3(bytes.data() + begin, static_cast<size_t>(size));
}

std::string ContentHash(const std::vector<uint64_t>& bucket_hashes) {
  return Hex64(Xxh3(bucket_hashes.data(), bucket_hashes.size() * sizeof(uint64_t)));
}

}  // namespace

void HashBuckets(const std::vector<std::byte>& bytes, int64_t bucket_bytes,
                 WeightManifest& manifest) {
  FRESHET_CHECK(bucket_bytes > 0);
  manifest.total_bytes = static_cast<int64_t>(bytes.size());
  manifest.bucket_bytes = bucket_bytes;
  manifest.bucket_hashes.clear();
  for (int64_t b = 0; b * bucket_bytes < manifest.total_bytes; ++b) {
    manifest.bucket_hashes.push_back(BucketHash(bytes, bucket_bytes, b));
  }
  manifest.content_hash = ContentHash(manifest.bucket_hashes);
}

absl::Status VerifyBuckets(const WeightManifest& manifest, const std::vector<std::byte>& bytes) {
  if (static_cast<int64_t>(bytes.size()) != manifest.total_bytes || manifest.bucket_bytes <= 0) {
    return DataLoss("weights of version ", manifest.policy.version, ": ", bytes.size(),
                    " bytes, the manifest says ", manifest.total_bytes);
  }
  const int64_t buckets =
      (manifest.total_bytes + manifest.bucket_bytes - 1) / manifest.bucket_bytes;
  if (buckets != static_cast<int64_t>(manifest.bucket_hashes.size())) {
    return DataLoss("weights of version ", manifest.policy.version, ": the manifest lists ",
                    manifest.bucket_hashes.size(), " buckets, its sizes make ", buckets);
  }
  for (int64_t b = 0; b < buckets; ++b) {
    if (BucketHash(bytes, manifest.bucket_bytes, b) !=
        manifest.bucket_hashes[static_cast<size_t>(b)]) {
      return DataLoss("weights of version ", manifest.policy.version, ": bucket ", b, " of ",
                      buckets, " differs from the manifest");
    }
  }
  if (ContentHash(manifest.bucket_hashes) != manifest.content_hash) {
    return DataLoss("weights of version ", manifest.policy.version, ": content hash differs");
  }
  return absl::OkStatus();
}

}  // namespace freshet
