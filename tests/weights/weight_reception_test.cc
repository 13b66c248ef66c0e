#include "weights/weight_reception.h"

#include <limits>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

std::string_view Text(const WeightBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

class WeightReceptionTest : public testing::Test {
 protected:
  std::shared_ptr<WeightReception> Receive(const VersionForTest& version) {
    auto reception = WeightReception::Create(version.manifest, {}, pool_, [this] { ++progress_; });
    EXPECT_TRUE(reception.ok()) << reception.status();
    return *std::move(reception);
  }
  WeightBufferPool pool_;
  int progress_ = 0;
  const VersionForTest version_ = MakeVersion({0, 1}, 1, 150, 64);
};

TEST_F(WeightReceptionTest, VerifiesEachBucketAsSoonAsItIsWhole) {
  const auto reception = Receive(version_);
  const std::string_view text = Text(version_.bytes);
  ASSERT_TRUE(reception->Append(0, text.substr(0, 63)).ok());
  EXPECT_EQ(*reception->Verified(), 0);
  ASSERT_TRUE(reception->Append(63, text.substr(63, 1)).ok());
  EXPECT_EQ(*reception->Verified(), 64);
  ASSERT_TRUE(reception->Append(64, text.substr(64, 80)).ok());
  EXPECT_EQ(*reception->Verified(), 128);
  EXPECT_EQ(progress_, 2);
  ASSERT_TRUE(reception->Append(144, text.substr(144)).ok());
  EXPECT_EQ(*reception->Verified(), 150);
  EXPECT_EQ(*reception->bytes(), *version_.bytes);
}

TEST_F(WeightReceptionTest, AnEmptyVersionIsWholeAtOnce) {
  EXPECT_EQ(*Receive(MakeVersion({0, 1}, 1, 0, 64))->Verified(), 0);
}

TEST_F(WeightReceptionTest, AGapAnOverlapAndAnExcessEndIt) {
  const std::string_view text = Text(version_.bytes);
  const struct {
    const char* name;
    int64_t offset;
    std::string_view piece;
  } cases[] = {{"gap", 11, text.substr(11, 10)},
               {"overlap", 9, text.substr(9, 10)},
               {"again", 0, text.substr(0, 10)},
               {"negative", -1, text.substr(0, 10)},
               {"largest", std::numeric_limits<int64_t>::max(), text.substr(0, 10)},
               {"beyond", 10, text.substr(0, 141)}};
  for (const auto& c : cases) {
    const auto reception = Receive(version_);
    ASSERT_TRUE(reception->Append(0, text.substr(0, 10)).ok());
    EXPECT_EQ(reception->Append(c.offset, c.piece).code(), kInvalid) << c.name;
    EXPECT_EQ(reception->Append(10, text.substr(10)).code(), kInvalid) << c.name;
    EXPECT_EQ(reception->Verified().status().code(), kInvalid) << c.name;
  }
}

TEST_F(WeightReceptionTest, AFlippedBitEndsItAtItsBucket) {
  const auto reception = Receive(version_);
  const WeightBytes torn = Torn(version_.bytes, 70);
  ASSERT_TRUE(reception->Append(0, Text(torn).substr(0, 100)).ok());
  const absl::Status status = reception->Append(100, Text(torn).substr(100));
  EXPECT_EQ(status.code(), kDataLoss);
  EXPECT_NE(std::string(status.message()).find("bucket 1 of 3"), std::string::npos) << status;
  EXPECT_EQ(reception->Verified().status().code(), kDataLoss);
}

TEST_F(WeightReceptionTest, AnAbortedOneTakesNothingMore) {
  const auto reception = Receive(version_);
  reception->Abort(absl::AbortedError("a newer call"));
  EXPECT_EQ(progress_, 1);
  EXPECT_EQ(reception->Append(0, Text(version_.bytes)).code(), absl::StatusCode::kAborted);
}

TEST_F(WeightReceptionTest, AWholeOneCannotBeAborted) {
  const auto reception = Receive(version_);
  ASSERT_TRUE(reception->Append(0, Text(version_.bytes)).ok());
  reception->Abort(absl::AbortedError("too late"));
  EXPECT_EQ(*reception->Verified(), 150);
}

TEST_F(WeightReceptionTest, RefusesAManifestThatBreaksABound) {
  const struct {
    const char* name;
    void (*damage)(WeightManifest&);
  } cases[] = {
      {"too large", [](WeightManifest& m) { m.total_bytes = int64_t{1} << 41; }},
      {"largest", [](WeightManifest& m) { m.total_bytes = std::numeric_limits<int64_t>::max(); }},
      {"negative", [](WeightManifest& m) { m.total_bytes = -1; }},
      {"no bucket size", [](WeightManifest& m) { m.bucket_bytes = 0; }},
      {"negative bucket size", [](WeightManifest& m) { m.bucket_bytes = -64; }},
      {"a hash short", [](WeightManifest& m) { m.bucket_hashes.pop_back(); }},
      {"another hash", [](WeightManifest& m) { m.bucket_hashes[0] ^= 1; }},
      {"negative epoch", [](WeightManifest& m) { m.epoch = -1; }},
      {"negative version", [](WeightManifest& m) { m.policy.version = -1; }},
      {"unknown dtype", [](WeightManifest& m) { m.entries[0].dtype = "Q4"; }},
      {"no name", [](WeightManifest& m) { m.entries[0].name.clear(); }},
      {"a long name", [](WeightManifest& m) { m.entries[0].name.assign(513, 'x'); }},
      {"negative offset", [](WeightManifest& m) { m.entries[0].offset_bytes = -1; }},
      {"tensor beyond the end", [](WeightManifest& m) { m.entries[0].offset_bytes = 1; }},
      {"negative dimension", [](WeightManifest& m) { m.entries[0].shape = {-1}; }},
      {"overflowing shape",
       [](WeightManifest& m) {
         m.entries[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
       }},
      {"many dimensions", [](WeightManifest& m) { m.entries[0].shape.assign(17, 1); }},
      {"many tensors", [](WeightManifest& m) { m.entries.assign(16'385, m.entries[0]); }}};
  for (const auto& c : cases) {
    WeightManifest manifest = version_.manifest;
    c.damage(manifest);
    EXPECT_EQ(WeightReception::Create(manifest, {}, pool_).status().code(), kInvalid) << c.name;
  }
}

TEST_F(WeightReceptionTest, ATensorHasTheBytesOfItsDtype) {
  // The version has 150 bytes.
  const struct {
    const char* dtype;
    int64_t longest;
  } cases[] = {{"F32", 37}, {"BF16", 75}, {"F16", 75}, {"U8", 150}};
  for (const auto& [dtype, longest] : cases) {
    WeightManifest manifest = version_.manifest;
    manifest.entries = {{"w", dtype, {longest}, 0}};
    EXPECT_TRUE(WeightReception::Create(manifest, {}, pool_).ok()) << dtype;
    manifest.entries[0].shape = {longest + 1};
    EXPECT_EQ(WeightReception::Create(manifest, {}, pool_).status().code(), kInvalid) << dtype;
  }
}

TEST_F(WeightReceptionTest, HoldsToTheLimitOfItsJob) {
  WeightLimits limits;
  limits.max_bytes = 149;
  EXPECT_EQ(WeightReception::Create(version_.manifest, limits, pool_).status().code(), kInvalid);
  limits.max_bytes = 150;
  EXPECT_TRUE(WeightReception::Create(version_.manifest, limits, pool_).ok());
}

TEST_F(WeightReceptionTest, TheVerifiedPrefixIsReadWhileTheRestArrives) {
  const VersionForTest version = MakeVersion({0, 1}, 1, 100'000, 64);
  const auto reception = Receive(version);
  std::string copy;
  std::jthread reader([&] {
    while (copy.size() < 100'000) {
      const auto end = static_cast<size_t>(*reception->Verified());
      copy += Text(reception->bytes()).substr(copy.size(), end - copy.size());
      std::this_thread::yield();
    }
  });
  for (int64_t at = 0; at < 100'000; at += 100) {
    ASSERT_TRUE(
        reception->Append(at, Text(version.bytes).substr(static_cast<size_t>(at), 100)).ok());
  }
  reader.join();
  EXPECT_EQ(copy, Text(version.bytes));
}

TEST_F(WeightReceptionTest, TheNextVersionReusesTheMemoryOfOneThatNobodyHolds) {
  const void* first = Receive(version_)->bytes()->data();
  EXPECT_EQ(Receive(version_)->bytes()->data(), first);
  const WeightBytes held = Receive(version_)->bytes();
  EXPECT_NE(Receive(version_)->bytes()->data(), held->data());
}

}  // namespace
}  // namespace freshet
