#ifndef FRESHET_TESTS_DATASTORE_REDIS_REDIS_STORE_FIXTURE_H_
#define FRESHET_TESTS_DATASTORE_REDIS_REDIS_STORE_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/trajectory_store_fixture.h"
#include "tests/datastore/redis/redis_server.h"
#include "tests/testing/fake_clock.h"

namespace freshet {

// A durable redis-server of its own, and a job with B = 2, G = 2, eta = 1 on it. Leases run by a
// fake clock unless a test says otherwise.
class RedisStoreTest : public testing::Test {
 protected:
  RedisStoreTest() {
    options_.job = "job";
    options_.staleness = {1, Disposition::kWait, 2, 100};
    options_.group_size = 2;
    options_.last_step = 20;
    options_.capacity_groups = 100;
    options_.max_queued_prompts = 100;
    settings_.clock = &clock_;
  }
  void SetUp() override { FRESHET_SKIP_WITHOUT_REDIS(); }

  void StartServer(std::map<std::string, std::string> config = {}) {
    auto server = RedisServer::Start(std::move(config));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = server_->Client();
  }
  // An object of its own on the job's store, as another process has it.
  std::unique_ptr<RedisTrajectoryStore> NewStore() {
    if (server_ == nullptr) StartServer();
    auto store = RedisTrajectoryStore::Create(server_->Client(), options_, origin_, settings_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  RedisTrajectoryStore& store() {
    if (store_ == nullptr) store_ = NewStore();
    return *store_;
  }
  RedisReply Redis(const std::vector<std::string>& command) {
    auto reply = client_->Command(command);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : RedisReply{};
  }
  std::vector<std::string> Keys(const std::string& pattern) {
    std::vector<std::string> keys;
    for (const RedisReply& key : Redis({"KEYS", pattern}).items) keys.push_back(key.text);
    return keys;
  }
  // Changes one byte in the middle of a value.
  void Corrupt(const std::string& key) {
    const int64_t size = Redis({"STRLEN", key}).integer;
    ASSERT_GT(size, 0) << key;
    Redis({"SETRANGE", key, StrCat(size / 2), "\xEE"});
  }

  void PutPrompts(int64_t count) {
    std::vector<Prompt> prompts;
    for (int64_t i = 0; i < count; ++i) {
      Prompt prompt;
      prompt.ordinal = next_ordinal_++;
      prompt.prompt_ids = {1, 2, 3};
      prompts.push_back(std::move(prompt));
    }
    EXPECT_EQ(store().PutPrompts(prompts)->accepted, count);
  }
  std::vector<GroupLease> Lease(int64_t version, int64_t groups, const std::string& worker = "w0") {
    PutPrompts(groups);
    const auto reply = store().LeasePrompts({worker, "", {0, version}, groups});
    EXPECT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->leases.size(), static_cast<size_t>(groups)) << reply->reason;
    return reply->leases;
  }
  void Finish(const GroupLease& lease, int64_t version, int32_t tokens = 3) {
    for (const int32_t index : lease.missing) {
      const absl::Status status =
          store().PutSample(lease.token, index, ResponseAt(version, tokens));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  static FieldValues ScoreOf(double reward) {
    auto score = std::make_shared<Score>();
    score->reward = reward;
    return {score};
  }
  void ScoreAll() {
    const auto rows = store().LeaseRows(Task::kScore, "r0", 10'000);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const RowLease& row : *rows) {
      const absl::Status status =
          store().PutFields(Task::kScore, row.token, ScoreOf(row.sample.key.index));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  void Produce(int64_t groups, int64_t version) {
    for (const GroupLease& lease : Lease(version, groups)) Finish(lease, version);
    ScoreAll();
  }
  void OpenEpoch(int64_t version = 0) {
    const auto reply = store().OpenEpoch("t0", {0, version});
    ASSERT_TRUE(reply.ok()) << reply.status();
    epoch_ = reply->epoch;
  }
  NextBatchReply NextBatch(int64_t step) {
    const auto reply = store().NextBatch(epoch_, step);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : NextBatchReply{};
  }
  static std::vector<int64_t> Ordinals(const NextBatchReply& batch) {
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    return ordinals;
  }
  CommitReceipt Train(int64_t step) {
    const NextBatchReply batch = NextBatch(step);
    EXPECT_TRUE(batch.ready) << batch.reason;
    const auto receipt = store().CommitStep(epoch_, step, Ordinals(batch), StrCat("hash", step));
    EXPECT_TRUE(receipt.ok()) << receipt.status();
    return receipt.ok() ? *receipt : CommitReceipt{};
  }
  int64_t Entered(GroupState state) {
    return store().Stats()->transitions[static_cast<int>(state)];
  }

  FakeClock clock_;
  StoreOptions options_;
  StoreOrigin origin_;
  RedisStoreSettings settings_;
  std::unique_ptr<RedisServer> server_;
  std::shared_ptr<RedisClient> client_;
  int64_t next_ordinal_ = 0;
  int64_t epoch_ = 0;

 private:
  std::unique_ptr<RedisTrajectoryStore> store_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_REDIS_REDIS_STORE_FIXTURE_H_
