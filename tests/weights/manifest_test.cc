#include "weights/manifest.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

TEST(BucketBytes, AreAPartOfTheVersionWithinBounds) {
  constexpr int64_t kKiB = 1 << 10;
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kGiB = 1 << 30;
  for (const auto& [total, bucket] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 16 * kKiB},
                                                {16 * kMiB, 16 * kKiB},
                                                {32 * kMiB - 1, 16 * kKiB},
                                                {32 * kMiB, 32 * kKiB},
                                                {830'000'000, 512 * kKiB},
                                                {4 * kGiB, 4 * kMiB},
                                                {512 * kGiB, 4 * kMiB}}) {
    EXPECT_EQ(BucketBytes(total), bucket) << total;
    EXPECT_LE(total / bucket, WeightLimits().max_buckets) << total;
  }
}

// The last engine of a chain of 128 waits for 127 buckets more than the first.
TEST(BucketBytes, AChainOf128TakesAtMostAnEighthMore) {
  for (int64_t total = 16 << 20; total < int64_t{1} << 40; total = total * 3 / 2 + 1) {
    EXPECT_LE(127 * BucketBytes(total), total / 8) << total;
  }
}

TEST(HashBuckets, CutsTheBytesAndKeepsTheShorterRest) {
  const WeightBytes bytes = PatternBytes(100, 1);
  WeightManifest manifest;
  HashBuckets(*bytes, 32, manifest);
  EXPECT_EQ(manifest.total_bytes, 100);
  EXPECT_EQ(manifest.bucket_bytes, 32);
  ASSERT_EQ(manifest.bucket_hashes.size(), 4U);  // 32 + 32 + 32 + 4
  EXPECT_EQ(manifest.bucket_hashes[0], Xxh3(bytes->data(), 32));
  EXPECT_EQ(manifest.bucket_hashes[3], Xxh3(bytes->data() + 96, 4));
  EXPECT_EQ(manifest.content_hash, Hex64(Xxh3(manifest.bucket_hashes.data(), 4 * 8)));
}

TEST(HashBuckets, ReplacesWhatTheManifestHeld) {
  WeightManifest manifest;
  HashBuckets(*PatternBytes(100, 1), 10, manifest);
  HashBuckets(*PatternBytes(100, 2), 50, manifest);
  WeightManifest fresh;
  HashBuckets(*PatternBytes(100, 2), 50, fresh);
  EXPECT_EQ(manifest.bucket_hashes, fresh.bucket_hashes);
  EXPECT_EQ(manifest.content_hash, fresh.content_hash);
}

TEST(HashBuckets, EqualBytesGiveEqualHashesAndOthersDoNot) {
  WeightManifest a, b, c;
  HashBuckets(*PatternBytes(1000, 1), 64, a);
  HashBuckets(*PatternBytes(1000, 1), 64, b);
  HashBuckets(*PatternBytes(1000, 2), 64, c);
  EXPECT_EQ(a.content_hash, b.content_hash);
  EXPECT_NE(a.content_hash, c.content_hash);
}

TEST(HashBuckets, CopiesAndHashesInSeveralThreadsAsInOne) {
  const WeightBytes bytes = PatternBytes((16 << 20) + 3, 1);
  std::vector<std::byte> copy(bytes->size());
  WeightManifest manifest;
  HashBuckets(*bytes, 1 << 20, manifest, copy.data());
  EXPECT_TRUE(std::equal(bytes->begin(), bytes->end(), copy.begin()));
  ASSERT_EQ(manifest.bucket_hashes.size(), 17U);
  for (int64_t b = 0; b < 17; ++b) {
    EXPECT_EQ(manifest.bucket_hashes[static_cast<size_t>(b)],
              Xxh3(copy.data() + (b << 20), b < 16 ? 1 << 20 : 3));
  }
}

TEST(VerifyBuckets, AcceptsWhatWasHashed) {
  for (const int64_t size : {0, 1, 63, 64, 65, 10007}) {
    for (const int64_t bucket : {1, 64, 20000}) {
      const VersionForTest version = MakeVersion({0, 1}, 1, size, bucket);
      EXPECT_TRUE(VerifyBuckets(version.manifest, *version.bytes).ok()) << size << " " << bucket;
    }
  }
}

TEST(VerifyBuckets, NamesTheBucketOfEveryFlippedByte) {
  const VersionForTest version = MakeVersion({0, 7}, 1, 150, 64);
  for (size_t i = 0; i < 150; ++i) {
    const absl::Status status = VerifyBuckets(version.manifest, *Torn(version.bytes, i));
    EXPECT_EQ(status.code(), kDataLoss) << "byte " << i;
    EXPECT_NE(Message(status).find(StrCat("bucket ", i / 64, " of 3")), std::string::npos)
        << status;
  }
}

TEST(VerifyBuckets, RefusesAnotherSize) {
  const VersionForTest version = MakeVersion({0, 1}, 1, 100, 64);
  const std::vector<std::byte> shorter(version.bytes->begin(), version.bytes->end() - 1);
  std::vector<std::byte> longer(version.bytes->begin(), version.bytes->end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(VerifyBuckets(version.manifest, shorter).code(), kDataLoss);
  EXPECT_EQ(VerifyBuckets(version.manifest, longer).code(), kDataLoss);
  EXPECT_EQ(VerifyBuckets(version.manifest, {}).code(), kDataLoss);
}

TEST(VerifyBuckets, RefusesAManifestThatContradictsItself) {
  const VersionForTest version = MakeVersion({0, 1}, 1, 100, 64);
  const struct {
    const char* name;
    void (*damage)(WeightManifest&);
  } cases[] = {
      {"no bucket size", [](WeightManifest& m) { m.bucket_bytes = 0; }},
      {"negative bucket size", [](WeightManifest& m) { m.bucket_bytes = -64; }},
      {"another bucket size", [](WeightManifest& m) { m.bucket_bytes = 32; }},
      {"a hash short", [](WeightManifest& m) { m.bucket_hashes.pop_back(); }},
      {"a hash too many", [](WeightManifest& m) { m.bucket_hashes.push_back(0); }},
      {"no hashes", [](WeightManifest& m) { m.bucket_hashes.clear(); }},
      {"hashes swapped",
       [](WeightManifest& m) { std::swap(m.bucket_hashes[0], m.bucket_hashes[1]); }},
      {"another content hash", [](WeightManifest& m) { m.content_hash[0] ^= 1; }},
      {"no content hash", [](WeightManifest& m) { m.content_hash.clear(); }},
  };
  for (const auto& c : cases) {
    WeightManifest manifest = version.manifest;
    c.damage(manifest);
    EXPECT_EQ(VerifyBuckets(manifest, *version.bytes).code(), kDataLoss) << c.name;
  }
}

}  // namespace
}  // namespace freshet
