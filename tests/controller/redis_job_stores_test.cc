#include "controller/redis_job_stores.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/trajectory_store_fixture.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class RedisJobStoresTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    auto server = RedisServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = server_->Client();
    stores_ = std::make_unique<RedisJobStores>(client_);
    options_.job = "a";
    options_.generation = 5;
    options_.staleness = {1, Disposition::kWait, 2, 100};
    options_.group_size = 2;
    options_.last_step = 20;
    options_.capacity_groups = 100;
    options_.max_queued_prompts = 100;
  }
  std::vector<std::string> Keys(const std::string& pattern) {
    std::vector<std::string> keys;
    const absl::StatusOr<RedisReply> found = client_->Command({"KEYS", pattern});
    for (const RedisReply& key : found->items) {
      keys.push_back(key.text);
    }
    return keys;
  }
  std::shared_ptr<TrajectoryStore> Used() {
    const std::shared_ptr<TrajectoryStore> store = *stores_->Open(options_);
    const int64_t epoch = store->OpenEpoch("t0", {0, 0})->epoch;
    EXPECT_TRUE(store->PutPrompts({{0, 0, {1}, {}}, {1, 0, {1}, {}}, {2, 0, {1}, {}}}).ok());
    const LeaseReply leased = *store->LeasePrompts({"w0", "r1", {0, 0}, 3});
    for (const GroupLease& lease : leased.leases) {
      for (const int32_t index : lease.missing) {
        auto score = std::make_shared<Score>();
        score->reward = index;
        const auto put = store->PutSamples(
            {{lease.token, index, std::make_shared<Response>(ResponseAt(0)), score}});
        EXPECT_TRUE(put.ok() && put->at(0).ok());
      }
    }
    EXPECT_TRUE(store->NextBatch(epoch, 1)->ready);
    EXPECT_TRUE(store->CommitStep(epoch, 1, {0, 1}, "hash").ok());
    return store;
  }

  std::unique_ptr<RedisServer> server_;
  std::shared_ptr<RedisClient> client_;
  std::unique_ptr<RedisJobStores> stores_;
  StoreOptions options_;
};

TEST_F(RedisJobStoresTest, RefusesTheStoreOfAnotherJobOfThatId) {
  ASSERT_TRUE(stores_->Open(options_).ok());
  ASSERT_TRUE(stores_->Open(options_).ok());
  options_.generation = 6;
  const absl::Status other = stores_->Open(options_).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(other), HasSubstr("the store of job a is of generation 5, not 6"));
  // Deleting the later job also removes what the earlier one left.
  ASSERT_TRUE(stores_->Delete({"a", 6, 1}).ok());
  EXPECT_TRUE(stores_->Open(options_).ok());
}

TEST_F(RedisJobStoresTest, OpensTheStoreOfAnOlderProgram) {
  options_.generation = 0;
  ASSERT_TRUE(stores_->Open(options_).ok());
  options_.generation = 6;
  EXPECT_TRUE(stores_->Open(options_).ok());
}

TEST_F(RedisJobStoresTest, DeletionTakesStoreAndStreamsOfThisJobAndLeader) {
  Used();
  ASSERT_TRUE(client_->Command({"SET", "{a}:events", "x"}).ok());
  ASSERT_TRUE(client_->Command({"HSET", "{freshet}:jobs:meta", "fence", "3"}).ok());
  const size_t keys = Keys("{a}:*").size();
  EXPECT_EQ(stores_->Delete({"a", 5, 2}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stores_->Delete({"a", 4, 3}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Keys("{a}:*").size(), keys);
  EXPECT_TRUE(stores_->Delete({"a", 5, 3}).ok());
  EXPECT_THAT(Keys("{a}:*"), IsEmpty());
  EXPECT_TRUE(stores_->Delete({"a", 5, 3}).ok());
}

TEST_F(RedisJobStoresTest, AJobThatIsDoneKeepsItsLedgerAndNoSamples) {
  const std::shared_ptr<TrajectoryStore> store = Used();
  ASSERT_TRUE(stores_->Free({"a", 5, 0}, /*resumable=*/true).ok());
  EXPECT_THAT(Keys("{a}:b:*"), Not(IsEmpty()));
  EXPECT_THAT(Keys("{a}:replay"), Not(IsEmpty()));
  EXPECT_TRUE(store->Stats().ok());
  ASSERT_TRUE(client_->Command({"HSET", "{freshet}:jobs:meta", "fence", "3"}).ok());
  EXPECT_EQ(stores_->Free({"a", 5, 2}, /*resumable=*/false).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(stores_->Free({"a", 5, 3}, /*resumable=*/false).ok());
  EXPECT_THAT(Keys("{a}:b:*"), IsEmpty());
  EXPECT_THAT(Keys("{a}:g:*"), IsEmpty());
  for (const char* name : {"holds", "tokens", "replay", "replays", "row_answers", "queue"}) {
    EXPECT_THAT(Keys(StrCat("{a}:", name)), IsEmpty());
  }
  EXPECT_EQ((*stores_->Find("a"))->Stats()->trained_samples, 4);
  EXPECT_EQ((*stores_->Find("a"))->ReadLedger(0, 100)->size(), 5u);  // 1 open row + 4 samples
  EXPECT_EQ(store->Stats()->committed_version, 1);
}

// Blobs of ended attempts are kept for a minute. Free must delete them, because no one sweeps the
// store of an ended job.
TEST_F(RedisJobStoresTest, AJobThatCanBeResumedLosesOnlyWhatWasToBeDeleted) {
  Used();
  ASSERT_TRUE(client_->Command({"SET", "{a}:b:ended", "x"}).ok());
  ASSERT_TRUE(client_->Command({"ZADD", "{a}:trash", "1", "b ended"}).ok());
  const size_t bytes = Keys("{a}:b:*").size();
  ASSERT_TRUE(stores_->Free({"a", 5, 0}, /*resumable=*/true).ok());
  EXPECT_EQ(Keys("{a}:b:*").size(), bytes - 1);
  EXPECT_TRUE(stores_->Free({"none", 5, 0}, /*resumable=*/true).ok());
}

}  // namespace
}  // namespace freshet
