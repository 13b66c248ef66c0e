// What becomes of bytes: corrupt, orphaned, overwritten, forgotten ones.
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/datastore/redis/redis_store_fixture.h"

namespace freshet {
namespace {

using RedisStoreBytes = RedisStoreTest;

TEST_F(RedisStoreBytes, ACorruptSampleDropsItsGroupAndTheOtherRowsGoOn) {
  const auto leases = Lease(0, 2);
  for (const GroupLease& lease : leases) Finish(lease, 0);
  Corrupt(Keys(StrCat("{job}:b:", leases[0].token, ":1:*")).at(0));
  const auto rows = store().LeaseRows(Task::kScore, "r0", 10);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ((*rows)[0].sample.key.ordinal, leases[1].ordinal);
  const auto ledger = *store().ReadLedger(0, 100);
  EXPECT_EQ(ledger.back().event, LedgerEvent::kDropped);
  EXPECT_EQ(ledger.back().prompt, leases[0].ordinal);
  EXPECT_THAT(ledger.back().reason, HasSubstr("corrupt: sample 1"));
  EXPECT_EQ(store().Stats()->outstanding, 1);
}

TEST_F(RedisStoreBytes, ACorruptSampleOfABatchIsReplacedByTheNextGroup) {
  OpenEpoch();
  Produce(3, 0);
  const auto keys = Keys("{job}:b:1:0:*");  // the first lease's sample 0
  Corrupt(keys.at(0));
  const NextBatchReply batch = NextBatch(1);
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_EQ(Ordinals(batch), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Entered(GroupState::kDropped), 1);
  EXPECT_EQ(Train(1).policy.version, 1);
}

TEST_F(RedisStoreBytes, ABatchWithoutReplacementSaysWhatIsMissing) {
  OpenEpoch();
  Produce(2, 0);
  Corrupt(Keys("{job}:b:2:1:*").at(0));
  const NextBatchReply batch = NextBatch(1);
  EXPECT_FALSE(batch.ready);
  EXPECT_THAT(batch.reason, HasSubstr("1 of 2 complete"));
  EXPECT_EQ(Entered(GroupState::kDropped), 1);
}

TEST_F(RedisStoreBytes, MissingBytesCountAsCorrupt) {
  OpenEpoch();
  Produce(3, 0);
  Redis({"DEL", Keys("{job}:b:3:0:*").at(0)});
  Redis({"DEL", Keys("{job}:b:1:0:*").at(0)});
  EXPECT_FALSE(NextBatch(1).ready);
  EXPECT_EQ(Entered(GroupState::kDropped), 2);  // the second claim met the other one
  Produce(1, 0);
  EXPECT_EQ(Ordinals(NextBatch(1)), (std::vector<int64_t>{1, 3}));
}

TEST_F(RedisStoreBytes, ACorruptPromptDropsItsGroup) {
  PutPrompts(2);
  Corrupt(Keys("{job}:b:p:0000000000000000:*").at(0));
  const auto reply = store().LeasePrompts({"w0", "", {0, 0}, 2});
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_THAT(reply->leases, SizeIs(1));
  EXPECT_EQ(reply->leases[0].ordinal, 1);
  EXPECT_EQ(Entered(GroupState::kDropped), 1);
}

TEST_F(RedisStoreBytes, ACorruptPartialDropsItsGroup) {
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {ResponseAt(0)}).ok());
  Corrupt(Keys(StrCat("{job}:b:", lease.token, ":0:*")).at(0));
  EXPECT_THAT(store().LeasePrompts({"w0", "", {0, 0}, 1})->leases, IsEmpty());
  EXPECT_EQ(Entered(GroupState::kDropped), 1);
}

// The group of the second prompt, which has no success and replays that of the first one.
class RedisReplayBytes : public RedisStoreBytes {
 protected:
  void ProduceSuccess() {
    options_.replay = ReplayOptions{4, 1.0, 8, 1};
    OpenEpoch();
    Produce(1, 0);
  }
  void ProduceFailure() {
    const GroupLease lease = Lease(0, 1)[0];
    failure_ = lease.token;
    Finish(lease, 0);
    const auto rows = *store().LeaseRows(Task::kScore, "r0", 2);
    for (const RowLease& row : rows) {
      ASSERT_TRUE(store().PutFields(Task::kScore, row.token, ScoreOf(0)).ok());
    }
  }
  int64_t failure_ = 0;  // the lease of that group
};

TEST_F(RedisReplayBytes, CorruptBytesOfAReplayedSampleDropItsGroup) {
  ProduceSuccess();
  ProduceFailure();
  ASSERT_EQ(store().Stats()->replayed_samples, 1);
  Corrupt(Keys(StrCat("{job}:b:", failure_, ":1:*")).at(0));
  EXPECT_FALSE(NextBatch(1).ready);
  EXPECT_EQ(Entered(GroupState::kDropped), 1);
}

TEST_F(RedisReplayBytes, ASuccessWhoseBytesAreLostIsNotReplayed) {
  ProduceSuccess();
  Redis({"DEL", Keys("{job}:b:r:*").at(0)});
  ProduceFailure();
  EXPECT_EQ(store().Stats()->replayed_samples, 0);
  EXPECT_TRUE(NextBatch(1).ready);
}

TEST_F(RedisStoreBytes, ARedoOfLostBytesIsDataLoss) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  OpenEpoch(0);
  Corrupt(Keys("{job}:b:1:0:*").at(0));
  EXPECT_EQ(store().NextBatch(epoch_, 1).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RedisStoreBytes, ARepeatedPutCannotChangeAcceptedBytes) {
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0, 3)).ok());
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0, 5)).ok());
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0, 3)).ok());
  const auto rows = *store().LeaseRows(Task::kScore, "r0", 1);
  EXPECT_THAT(rows.at(0).sample.response->response_ids, SizeIs(3));
  // The accepted bytes stay; those of the other put expire.
  std::multiset<bool> expiring;
  for (const std::string& key : Keys(StrCat("{job}:b:", lease.token, ":0:*"))) {
    expiring.insert(Redis({"PTTL", key}).integer > 0);
  }
  EXPECT_EQ(expiring, (std::multiset<bool>{false, true}));
}

TEST_F(RedisStoreBytes, BytesOfAFencedWorkerExpire) {
  const GroupLease lease = Lease(0, 1)[0];
  clock_.Advance(options_.lease_ttl + absl::Seconds(1));
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), kPrecondition);
  for (const std::string& key : Keys(StrCat("{job}:b:", lease.token, ":*"))) {
    EXPECT_GT(Redis({"PTTL", key}).integer, 0) << key;
  }
}

TEST_F(RedisStoreBytes, DurableStepsAreDeletedBySweep) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  ASSERT_TRUE(store().MarkDurable(epoch_, 2, "sha2").ok());
  EXPECT_THAT(Keys("{job}:g:*"), SizeIs(6));
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_THAT(Keys("{job}:g:*"), SizeIs(4));
  EXPECT_THAT(Keys("{job}:b:*"), SizeIs(4 * 3));  // a prompt and two samples each
  EXPECT_EQ(Redis({"ZCARD", "{job}:trash"}).integer, 0);
  EXPECT_EQ(Redis({"HLEN", "{job}:tokens"}).integer, 4);
  EXPECT_EQ(Redis({"HLEN", "{job}:holds"}).integer, 8);
  EXPECT_TRUE(NextBatch(2).ready);  // the newest two checkpoints can be redone
}

TEST_F(RedisStoreBytes, BytesOfEndedAttemptsAreDeletedAfterAWhile) {
  options_.max_row_failures = 1;
  const GroupLease lease = Lease(0, 1)[0];
  Finish(lease, 0);
  const auto rows = *store().LeaseRows(Task::kScore, "r0", 1);
  ASSERT_TRUE(store().FailRow(Task::kScore, rows.at(0).token, "no route").ok());
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_THAT(Keys("{job}:b:*"), SizeIs(3));  // a reader may have been told of them just now
  clock_.Advance(absl::Minutes(1));
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_THAT(Keys("{job}:b:*"), IsEmpty());
  EXPECT_THAT(Keys("{job}:g:*"), IsEmpty());
  const auto letters = *store().DeadLetters(10);
  ASSERT_THAT(letters, SizeIs(1));
  EXPECT_EQ(letters[0].ordinal, lease.ordinal);
  EXPECT_EQ(letters[0].reason, "score_failed: 1 times: no route");
}

// Server time of the scripts is printed, as a figure for the documentation; no test depends on it.
TEST_F(RedisStoreBytes, ABatchOf64GroupsOf16IsWhole) {
  options_.group_size = 16;
  options_.staleness.groups_per_step = 64;
  options_.staleness.max_in_flight = 1000;
  options_.capacity_groups = 1000;
  options_.max_queued_prompts = 1000;
  StartServer({{"appendonly", "no"}, {"slowlog-log-slower-than", "0"}});
  OpenEpoch();
  const auto server_time = [this] {
    const RedisReply entries = Redis({"SLOWLOG", "GET", "1"});
    return static_cast<long>(entries.items.at(0).items.at(2).integer);
  };
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_FALSE(NextBatch(step).ready);
    Produce(64, step - 1);
    Redis({"CONFIG", "SET", "slowlog-log-slower-than", "0"});
    const NextBatchReply batch = NextBatch(step);
    ASSERT_TRUE(batch.ready) << batch.reason;
    ASSERT_THAT(batch.groups, SizeIs(64));
    for (const TrainGroup& group : batch.groups) ASSERT_THAT(group.samples, SizeIs(16));
    const RedisReply claim = Redis({"SLOWLOG", "GET", "2"});  // MGET, and the script before it
    ASSERT_TRUE(store().CommitStep(epoch_, step, Ordinals(batch), "hash").ok());
    std::printf("step %ld: claim of 64 groups of 16: %ld us, commit: %ld us of server time\n",
                static_cast<long>(step), static_cast<long>(claim.items.at(1).items.at(2).integer),
                server_time());
    ASSERT_TRUE(store().MarkDurable(epoch_, step, "sha").ok());
    std::printf("  durable: %ld us\n", server_time());
    ASSERT_TRUE(store().Sweep().ok());
    std::printf("  sweep, last slice: %ld us\n", server_time());
  }
  EXPECT_EQ(store().ReadLedger(1, 10'000)->size(), 4u * 1024 + 4);
}

TEST_F(RedisStoreBytes, PromptsThatAreAcceptedStay) {
  PutPrompts(2);
  const auto prompts = Keys("{job}:b:p:*");
  ASSERT_THAT(prompts, SizeIs(2));
  for (const std::string& key : prompts) EXPECT_EQ(Redis({"PTTL", key}).integer, -1) << key;
}

TEST_F(RedisStoreBytes, NothingIsLeftOfALeaseWhoseAttemptEnded) {
  const auto leases = Lease(0, 2);
  EXPECT_EQ(Redis({"HLEN", "{job}:tokens"}).integer, 2);
  ASSERT_TRUE(store().ReturnLease(leases[0].token, {}, {}).ok());
  ASSERT_TRUE(store().FailLease(leases[1].token, "raised").ok());
  EXPECT_EQ(Redis({"HLEN", "{job}:tokens"}).integer, 0);
  EXPECT_EQ(Redis({"ZCARD", "{job}:gleases"}).integer, 0);
}

}  // namespace
}  // namespace freshet
