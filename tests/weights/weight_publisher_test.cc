#include "weights/weight_publisher.h"

#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/testing/memory_limit.h"
#include "weights/inprocess_transport.h"

namespace freshet {
namespace {

std::string Arena(int64_t version, size_t size = 1000) {
  return std::string(size, static_cast<char>('a' + version));
}
std::string Text(const WeightBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}
const WeightSnapshot& Staged(WeightPublisher& publisher, PolicyVersion policy, int64_t epoch,
                             const std::string& arena) {
  const absl::Status status = publisher.Stage(policy, epoch, arena);
  EXPECT_TRUE(status.ok()) << status;
  return publisher.staged();
}
CommitReceipt ReceiptOf(const WeightSnapshot& staged) {
  const WeightManifest& manifest = staged.manifest;
  return {manifest.policy, manifest.epoch, manifest.policy.version, manifest.content_hash, ""};
}

class WeightPublisherTest : public testing::Test {
 protected:
  WeightPublisher MakePublisher() {
    return WeightPublisher({{"w", "F32", {250}, 0}},
                           {std::make_shared<InProcessTransport>(std::vector{engine_})}, nullptr,
                           nullptr, /*bucket_bytes=*/64);
  }
  std::shared_ptr<WeightSubscriber> engine_ = std::make_shared<WeightSubscriber>();
};

TEST_F(WeightPublisherTest, StagesACopyThatVerifies) {
  WeightPublisher publisher = MakePublisher();
  std::string arena = Arena(1);
  const WeightSnapshot& staged = Staged(publisher, {2, 1}, 5, arena);
  arena.assign(arena.size(), 'z');
  EXPECT_EQ(Text(staged.bytes), Arena(1));
  EXPECT_TRUE(VerifyBuckets(staged.manifest, *staged.bytes).ok());
  EXPECT_EQ(staged.manifest.policy, (PolicyVersion{2, 1}));
  EXPECT_EQ(staged.manifest.epoch, 5);
  ASSERT_EQ(staged.manifest.entries.size(), 1U);
  EXPECT_EQ(staged.manifest.entries[0].name, "w");
  EXPECT_EQ(staged.manifest.bucket_hashes.size(), 16U);  // ceil(1000 / 64)
}

TEST_F(WeightPublisherTest, TheHashDependsOnTheBytesAlone) {
  WeightPublisher publisher = MakePublisher();
  const std::string first = Staged(publisher, {0, 1}, 1, Arena(1)).manifest.content_hash;
  const std::string other = Staged(publisher, {0, 2}, 1, Arena(2)).manifest.content_hash;
  EXPECT_NE(first, other);
  EXPECT_EQ(Staged(publisher, {3, 9}, 4, Arena(1)).manifest.content_hash, first);
}

TEST_F(WeightPublisherTest, PublishesTheStagedVersionToEveryTransport) {
  const auto second = std::make_shared<WeightSubscriber>();
  WeightPublisher publisher({}, {std::make_shared<InProcessTransport>(std::vector{engine_}),
                                 std::make_shared<InProcessTransport>(std::vector{second})});
  const WeightSnapshot& staged = Staged(publisher, {0, 1}, 1, Arena(1));
  EXPECT_FALSE(engine_->Take().has_value());
  ASSERT_TRUE(publisher.Publish(ReceiptOf(staged)).ok());
  EXPECT_EQ(publisher.AwaitPublished(), 2);
  EXPECT_EQ(Text(engine_->Take()->bytes), Arena(1));
  EXPECT_EQ(Text(second->Take()->bytes), Arena(1));
}

TEST_F(WeightPublisherTest, RefusesAReceiptThatIsNotForTheStagedVersion) {
  WeightPublisher publisher = MakePublisher();
  EXPECT_EQ(publisher.Publish(CommitReceipt{}).code(), absl::StatusCode::kFailedPrecondition);
  CommitReceipt other_version = ReceiptOf(Staged(publisher, {0, 1}, 1, Arena(1)));
  CommitReceipt other_hash = other_version;
  other_version.policy.version = 2;
  other_hash.content_hash = "0000000000000000";
  EXPECT_EQ(publisher.Publish(other_version).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(publisher.Publish(other_hash).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(engine_->Take().has_value());
}

TEST_F(WeightPublisherTest, ReusesABufferThatNobodyHolds) {
  WeightPublisher publisher = MakePublisher();
  const void* first = Staged(publisher, {0, 1}, 1, Arena(1)).bytes->data();
  for (int64_t v = 2; v < 10; ++v) {
    EXPECT_EQ(Staged(publisher, {0, v}, 1, Arena(v)).bytes->data(), first);
  }
}

TEST_F(WeightPublisherTest, NeverWritesIntoABufferThatAnEngineHolds) {
  WeightPublisher publisher = MakePublisher();
  ASSERT_TRUE(publisher.Publish(ReceiptOf(Staged(publisher, {0, 1}, 1, Arena(1)))).ok());
  publisher.AwaitPublished();
  const WeightSnapshot held = *engine_->Take();
  std::set<const void*> buffers;
  for (int64_t v = 2; v < 10; ++v) {
    buffers.insert(Staged(publisher, {0, v}, 1, Arena(v)).bytes->data());
    EXPECT_EQ(Text(held.bytes), Arena(1));
  }
  EXPECT_FALSE(buffers.contains(held.bytes->data()));
  EXPECT_EQ(buffers.size(), 1U);
}

TEST_F(WeightPublisherTest, TakesAnArenaOfAnotherSize) {
  WeightPublisher publisher = MakePublisher();
  Staged(publisher, {0, 1}, 1, Arena(1, 1000));
  EXPECT_EQ(Text(Staged(publisher, {0, 2}, 1, Arena(2, 17)).bytes), Arena(2, 17));
  EXPECT_EQ(Text(Staged(publisher, {0, 3}, 1, Arena(3, 2000)).bytes), Arena(3, 2000));
}

TEST_F(WeightPublisherTest, WithoutMemoryForTheCopyNothingIsStaged) {
  const std::string arena(size_t{64} << 20, 'a');
  FRESHET_EXPECT_IN_CHILD(
      {
        WeightPublisher publisher = MakePublisher();
        LimitMemory(int64_t{16} << 20);
        const absl::Status status = publisher.Stage({0, 7}, 1, arena);
        if (publisher.staged().bytes != nullptr) std::abort();
        ExitWith(status);
      },
      "RESOURCE_EXHAUSTED: version 7 cannot be published: no memory for 67108864 bytes of weights; "
      "give the trainer more memory");
}

TEST_F(WeightPublisherTest, ASnapshotOutlivesThePublisher) {
  WeightSnapshot held;
  {
    WeightPublisher publisher = MakePublisher();
    held = Staged(publisher, {0, 1}, 1, Arena(1));
  }
  EXPECT_EQ(Text(held.bytes), Arena(1));
}

TEST_F(WeightPublisherTest, EveryVersionTakenIsWholeWhileTheNextAreStaged) {
  WeightPublisher publisher = MakePublisher();
  constexpr int64_t kVersions = 300;
  std::jthread trainer([&] {
    for (int64_t v = 1; v <= kVersions; ++v) {
      const WeightSnapshot& staged = Staged(publisher, {0, v}, 1, Arena(v % 26));
      ASSERT_TRUE(publisher.Publish(ReceiptOf(staged)).ok());
    }
  });
  int64_t last = 0;
  while (last < kVersions) {
    const auto taken = engine_->Take();
    if (!taken.has_value()) {
      std::this_thread::yield();
      continue;
    }
    last = taken->manifest.policy.version;
    ASSERT_EQ(Text(taken->bytes), Arena(last % 26));
  }
}

// Lets ThreadSanitizer check that the engine's reads happen before the buffer is reused.
TEST_F(WeightPublisherTest, AnEnginesReadsComeBeforeItsBufferIsWrittenAgain) {
  for (int round = 0; round < 50; ++round) {
    WeightPublisher publisher = MakePublisher();
    WeightSnapshot held = Staged(publisher, {0, 1}, 1, Arena(1));
    const void* buffer = held.bytes->data();
    std::string read;
    std::jthread engine([snapshot = std::move(held), &read]() mutable {
      read = Text(snapshot.bytes);
      snapshot = {};
    });
    // Take buffers until the engine's buffer is reused.
    std::vector<WeightSnapshot> out;
    for (int i = 0; i < 1'000'000; ++i) {
      const WeightSnapshot& staged = Staged(publisher, {0, 2}, 1, Arena(2));
      if (staged.bytes->data() == buffer) break;
      if (i % 2 == 0) out.assign(1, staged);
      std::this_thread::yield();
    }
    engine.join();
    EXPECT_EQ(read, Arena(1));
  }
}

}  // namespace
}  // namespace freshet
