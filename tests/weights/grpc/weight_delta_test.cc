#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/weights/grpc/relay_fixture.h"
#include "weights/delta_codec.h"
#include "weights/grpc/manifest_codec.h"

namespace freshet {
namespace {

constexpr int64_t kDeltaTestBytes = (3 << 20) + 5;
constexpr int64_t kDeltaTestBucket = 2 << 20;  // larger than a chunk

VersionForTest DeltaTestVersion(int64_t number, std::vector<std::byte> bytes) {
  VersionForTest version;
  version.bytes = MakeWeightBytes(std::move(bytes));
  version.manifest.policy = {0, number};
  version.manifest.epoch = 1;
  version.manifest.entries = {{"all", "BF16", {kDeltaTestBytes / 2}, 0}};
  HashBuckets(*version.bytes, kDeltaTestBucket, version.manifest);
  version.receipt = {version.manifest.policy, 1, number, version.manifest.content_hash, "digest"};
  return version;
}

// Version `number` of a training run: each step moves one of 8 words.
VersionForTest Step(int64_t number) {
  const WeightBytes start = PatternBytes(kDeltaTestBytes, 1);
  std::vector<std::byte> bytes(start->begin(), start->end());
  for (size_t at = 0; at + 2 <= bytes.size(); at += 16) {
    uint16_t word = 0;
    std::memcpy(&word, bytes.data() + at, 2);
    word = static_cast<uint16_t>(word + number);
    std::memcpy(bytes.data() + at, &word, 2);
  }
  bytes.back() = static_cast<std::byte>(number);
  return DeltaTestVersion(number, std::move(bytes));
}

// A trainer in the site "home", and engines in the site "far".
class WeightDeltaTest : public RelayFixture {
 protected:
  WeightDeltaTest() {
    options_.site = "home";
    options_.delta = true;
    engine_site_ = "far";
  }
  // Returns how many engines have activated it.
  int Publish(const VersionForTest& version) {
    Transport().Publish(version.Committed());
    int holders = 0;
    for (const auto& engine : engines_) {
      const auto active = engine->subscriber().Committed();
      if (active.has_value() && *active->snapshot.bytes == *version.bytes) ++holders;
    }
    return holders;
  }
  WeightSubscriber& subscriber(int i) { return engine(i).subscriber(); }
};

TEST_F(WeightDeltaTest, AnotherSiteGetsDifferencesAndItsEnginesPassTheVersionOn) {
  StartEngines(3);
  ASSERT_EQ(Publish(Step(1)), 3);
  EXPECT_EQ(counters_.totals().bytes, kDeltaTestBytes);
  EXPECT_EQ(counters_.totals().delta_bytes, 0);
  ASSERT_EQ(Publish(Step(2)), 3);
  ASSERT_EQ(Publish(Step(3)), 3);
  const auto totals = counters_.totals();
  EXPECT_EQ(totals.delta_bytes, 2 * kDeltaTestBytes);
  EXPECT_LT(totals.delta_sent, totals.delta_bytes / 10);
  EXPECT_EQ(totals.bytes, kDeltaTestBytes + totals.delta_sent);
  for (size_t i = 0; i < 3; ++i) {
    const auto relayed = engines_[i]->counters().totals();
    EXPECT_EQ(relayed.bytes, i < 2 ? 3 * kDeltaTestBytes : 0) << i;
    EXPECT_EQ(relayed.delta_bytes, 0) << i;
  }
  EXPECT_TRUE(log_.With("event=corrupt_delta").empty());
}

TEST_F(WeightDeltaTest, TheTrainersSiteGetsNone) {
  StartEngines(2);
  for (WeightMember& member : members_) member.site = "home";
  for (int64_t v = 1; v <= 2; ++v) ASSERT_EQ(Publish(Step(v)), 2);
  EXPECT_EQ(counters_.totals().delta_bytes, 0);
  EXPECT_EQ(counters_.totals().bytes, 2 * kDeltaTestBytes);
}

TEST_F(WeightDeltaTest, WithoutTheOptionThereAreNone) {
  options_.delta = false;
  StartEngines(1);
  for (int64_t v = 1; v <= 2; ++v) ASSERT_EQ(Publish(Step(v)), 1);
  EXPECT_EQ(counters_.totals().delta_bytes, 0);
  EXPECT_EQ(counters_.totals().bytes, 2 * kDeltaTestBytes);
}

TEST_F(WeightDeltaTest, SharedMemoryIsNotSent) {
  options_.route = ClusterRoute::kAuto;
  StartEngines(1);
  for (int64_t v = 1; v <= 2; ++v) ASSERT_EQ(Publish(Step(v)), 1);
  EXPECT_EQ(counters_.totals().bytes, 0);
}

TEST_F(WeightDeltaTest, PiecesThatDoNotGetSmallerAreSentAsTheyAre) {
  StartEngines(1);
  ASSERT_EQ(Publish(Step(1)), 1);
  const WeightBytes other = PatternBytes(kDeltaTestBytes, 7);
  ASSERT_EQ(Publish(DeltaTestVersion(2, {other->begin(), other->end()})), 1);
  EXPECT_EQ(counters_.totals().delta_bytes, kDeltaTestBytes);
  EXPECT_GE(counters_.totals().delta_sent, kDeltaTestBytes - kDeltaTestBytes % (1 << 20));
}

TEST_F(WeightDeltaTest, AnEngineThatRestartedGetsTheWholeVersion) {
  StartEngines(1);
  ASSERT_EQ(Publish(Step(1)), 1);
  const std::string address = members_[0].address;
  engines_.clear();
  engines_.push_back(std::make_unique<TestMember>(
      "engine-0", WeightEndpoint{std::make_shared<WeightSubscriber>(), {}, {}}, kHost, address));
  ASSERT_EQ(Publish(Step(2)), 1);
  EXPECT_EQ(counters_.totals().delta_bytes, 0);
  EXPECT_EQ(counters_.totals().bytes, 2 * kDeltaTestBytes);
  ASSERT_EQ(Publish(Step(3)), 1);
  EXPECT_EQ(counters_.totals().delta_bytes, kDeltaTestBytes);
}

TEST_F(WeightDeltaTest, AnEngineWithAVersionThatTheTrainerHasNotGetsTheWholeVersion) {
  StartEngines(1);
  ASSERT_EQ(Publish(Step(1)), 1);
  const VersionForTest elsewhere = Step(2);
  ASSERT_TRUE(subscriber(0).Prepare(elsewhere.manifest, elsewhere.bytes).ok());
  ASSERT_TRUE(subscriber(0).Activate(elsewhere.receipt).ok());
  ASSERT_EQ(Publish(Step(3)), 1);
  EXPECT_EQ(counters_.totals().delta_bytes, 0);
  EXPECT_EQ(counters_.totals().bytes, 2 * kDeltaTestBytes);
}

TEST_F(WeightDeltaTest, WhenAnEnginesBaseIsCorruptTheWholeVersionFollows) {
  StartEngines(2);
  const VersionForTest first = Step(1);
  const auto held =
      std::make_shared<std::vector<std::byte>>(first.bytes->begin(), first.bytes->end());
  ASSERT_TRUE(subscriber(0)
                  .Prepare(first.manifest,
                           std::make_shared<const WeightArena>(held->data(), held->size(), held))
                  .ok());
  ASSERT_TRUE(subscriber(0).Activate(first.receipt).ok());
  ASSERT_EQ(Publish(first), 2);
  (*held)[kDeltaTestBucket - 1] ^= std::byte{1};
  const int64_t before = counters_.totals().bytes;
  ASSERT_EQ(Publish(Step(2)), 2);
  const auto totals = counters_.totals();
  EXPECT_GE(totals.bytes - before, kDeltaTestBytes);
  EXPECT_TRUE(totals.failures.empty());
  const auto logged = log_.With("event=corrupt_delta member=engine-0 version=2 ");
  ASSERT_EQ(logged.size(), 1U);
  EXPECT_NE(logged[0].find("differs from the manifest"), std::string::npos) << logged[0];
  // From now on it gets whole versions.
  ASSERT_EQ(Publish(Step(3)), 2);
  EXPECT_EQ(counters_.totals().delta_bytes, totals.delta_bytes);
  EXPECT_EQ(counters_.totals().bytes, totals.bytes + kDeltaTestBytes);
}

TEST_F(WeightDeltaTest, AnEngineThatDoesNotTellItsBaseIsSkippedAfterItsSilence) {
  options_.silence_timeout = absl::Seconds(2);
  StartEngines(2);
  ASSERT_EQ(Publish(Step(1)), 2);
  PrepareProxy silent(PrepareProxy::Error::kSwallow, 0, members_[0].address);
  LoopbackServer server(&silent);
  members_[0].address = server.address();
  Transport().SetMembers(2, members_);
  EXPECT_EQ(Publish(Step(2)), 1);
  EXPECT_GE(counters_.totals().failures.at("timeout"), 1);
  EXPECT_GT(counters_.totals().delta_bytes, 0);  // to the other
  transport_.reset();
}

// Messages of a caller that is not a trainer.
class DeltaMessageTest : public testing::Test {
 protected:
  DeltaMessageTest() {
    const VersionForTest first = Step(1);
    EXPECT_TRUE(engine_->subscriber().Prepare(first.manifest, first.bytes).ok());
    EXPECT_TRUE(engine_->subscriber().Activate(first.receipt).ok());
  }
  weights::v1::PrepareRequest Header(bool ask_base) const {
    weights::v1::PrepareRequest request;
    request.mutable_header()->set_job(kJob);
    request.mutable_header()->set_ask_base(ask_base);
    ManifestToProto(version_.manifest, *request.mutable_header()->mutable_manifest());
    return request;
  }
  static weights::v1::PrepareRequest Delta(int64_t offset, int64_t size, std::string data) {
    weights::v1::PrepareRequest request;
    request.mutable_delta()->set_offset(offset);
    request.mutable_delta()->set_size(size);
    request.mutable_delta()->set_data(std::move(data));
    return request;
  }
  // The receiver's result after the header and `message`.
  absl::StatusCode Send(bool ask_base, const weights::v1::PrepareRequest& message) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto stream = stub_->Prepare(&context);
    stream->Write(Header(ask_base));
    stream->Write(message);
    stream->WritesDone();
    absl::StatusCode code = absl::StatusCode::kUnknown;
    weights::v1::PrepareReply reply;
    for (base_ = std::nullopt; stream->Read(&reply);) {
      if (!base_.has_value()) base_ = reply.base();
      for (const auto& member : reply.members()) code = ResultFromProto(member).code();
    }
    EXPECT_TRUE(stream->Finish().ok());
    return code;
  }

  const std::unique_ptr<TestMember> engine_ = MakeEngine("engine");
  const std::unique_ptr<weights::v1::WeightService::Stub> stub_ = engine_->Stub();
  const VersionForTest version_ = Step(2);
  std::optional<std::string> base_;
};

TEST_F(DeltaMessageTest, TheBaseIsNamedToWhoAsks) {
  Send(false, Delta(0, 1, "x"));
  EXPECT_EQ(base_, "");
  Send(true, Delta(0, 1, "x"));
  EXPECT_EQ(base_, Step(1).manifest.content_hash);
}

TEST_F(DeltaMessageTest, NothingIsKeptOfDifferencesThatExceedALimit) {
  const std::vector<std::byte> zeros(1 << 20);
  const std::string encoded = *DeltaCodec(version_.manifest).Encode(zeros, zeros);
  const auto kMegabyte = int64_t{1} << 20;
  using absl::StatusCode;
  EXPECT_EQ(Send(false, Delta(0, kMegabyte, encoded)), StatusCode::kInvalidArgument);
  for (const int64_t size : {int64_t{-1}, int64_t{0}, kMegabyte + 1, int64_t{1} << 40}) {
    EXPECT_EQ(Send(true, Delta(0, size, encoded)), StatusCode::kInvalidArgument) << size;
  }
  for (const int64_t offset : {int64_t{-1}, int64_t{1}, kDeltaTestBytes - 1, kDeltaTestBytes,
                               std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Send(true, Delta(offset, kMegabyte, encoded)), StatusCode::kInvalidArgument)
        << offset;
  }
  EXPECT_EQ(Send(true, Delta(0, 4, "12345")), StatusCode::kInvalidArgument);
  EXPECT_EQ(Send(true, Delta(0, 100, encoded)), StatusCode::kDataLoss);  // of a megabyte
  EXPECT_EQ(Send(true, Delta(0, 100, "not zstd")), StatusCode::kDataLoss);
  // Valid, but less than the version.
  EXPECT_EQ(Send(true, Delta(0, kMegabyte, encoded)), StatusCode::kDataLoss);
  EXPECT_FALSE(engine_->subscriber().Activate(version_.receipt).ok());
  EXPECT_EQ(engine_->subscriber().Committed()->snapshot.manifest.policy.version, 1);
}

}  // namespace
}  // namespace freshet
