// The store when Redis dies, is full, loses its scripts or its connections; and its life cycle.
#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tests/datastore/redis/redis_store_fixture.h"
#include "tests/datastore/redis/store_answers.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

class RedisStoreFault : public RedisStoreTest {
 protected:
  // Everything that the job's keys hold, but for bytes that wait to expire.
  std::string Everything() {
    std::vector<std::string> keys = Keys("*");
    std::sort(keys.begin(), keys.end());
    std::string text;
    for (const std::string& key : keys) {
      if (Redis({"PTTL", key}).integer > 0) continue;
      text += StrCat(key, "=", Redis({"DUMP", key}).text, "\n");
    }
    return text;
  }
  // Far below what is in use: every command that takes memory is refused.
  void LimitMemory() { Redis({"CONFIG", "SET", "maxmemory", "100kb"}); }
};

TEST_F(RedisStoreFault, CreateIsIdempotentAndRefusesOtherValues) {
  (void)store();
  EXPECT_NE(NewStore(), nullptr);
  StoreOptions other = options_;
  other.staleness.max = 2;
  const auto refused = RedisTrajectoryStore::Create(client_, other, origin_, settings_);
  EXPECT_EQ(refused.status().code(), kPrecondition);
  EXPECT_THAT(Message(refused.status()), HasSubstr("staleness.max: 1 stored, 2 asked"));
  StoreOrigin fork;
  fork.resumed = true;
  EXPECT_THAT(Message(RedisTrajectoryStore::Create(client_, options_, fork, settings_).status()),
              HasSubstr("origin.resumed"));
}

TEST_F(RedisStoreFault, WhatCurationKnowsOutlivesProcessesAndTheServer) {
  options_.group_size = 4;
  options_.replay = ReplayOptions{4, 1.0, 8, /*max_successes=*/4};
  options_.adaptive = AdaptiveOptions{2, 1.0, 0};
  const auto score = [this](double reward) {
    const auto rows = store().LeaseRows(Task::kScore, "r0", 10);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const RowLease& row : *rows) {
      EXPECT_TRUE(store().PutFields(Task::kScore, row.token, ScoreOf(reward)).ok());
    }
  };
  Finish(Lease(0, 1)[0], 0);
  score(1);
  ASSERT_TRUE(server_->Restart().ok());
  const auto other = RedisTrajectoryStore::Open(server_->Client(), "job", settings_);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Stats()->pooled_successes, 1);
  PutPrompts(1);  // of the same row
  const auto leased = (*other)->LeasePrompts({"w1", "", {0, 0}, 1});
  ASSERT_TRUE(leased.ok()) << leased.status();
  ASSERT_EQ(leased->leases.size(), 1U) << leased->reason;
  EXPECT_EQ(leased->leases[0].missing.size(), 2U) << "the row always succeeds";
  Finish(leased->leases[0], 0);
  score(0);
  EXPECT_EQ((*other)->Stats()->replayed_samples, 1);
}

TEST_F(RedisStoreFault, OpenReadsTheConfiguration) {
  StartServer();
  EXPECT_EQ(RedisTrajectoryStore::Open(client_, "job", settings_).status().code(),
            absl::StatusCode::kNotFound);
  options_.filter.zero_variance = true;
  options_.filter.min_mean = 0.1;
  options_.replay = ReplayOptions{9, 1.0 / 3, 7, 2};
  options_.adaptive = AdaptiveOptions{2, 1.0 / 3, 1.5};
  options_.lease_ttl = absl::Milliseconds(1500);
  (void)store();
  const auto opened = RedisTrajectoryStore::Open(client_, "job", settings_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const StoreOptions& options = (*opened)->options();
  EXPECT_TRUE(options.filter.zero_variance);
  EXPECT_EQ(options.filter.min_mean, std::optional<double>(0.1));
  EXPECT_EQ(options.filter.max_mean, std::nullopt);
  ASSERT_TRUE(options.replay.has_value());
  EXPECT_EQ(options.replay->max_age, 9);
  EXPECT_EQ(options.replay->min_reward, 1.0 / 3);
  EXPECT_EQ(options.replay->capacity, 7);
  EXPECT_EQ(options.replay->max_successes, 2);
  EXPECT_EQ(options.adaptive, options_.adaptive);
  EXPECT_THAT(Redis({"GET", "{job}:config"}).text,
              HasSubstr(StrCat("\"format\":", kRedisAdaptiveFormat)))
      << "older programs refuse it";
  EXPECT_EQ((*opened)->options().lease_ttl, absl::Milliseconds(1500));
  Redis({"SET", "{job}:config", "{\"job\": 1}"});
  EXPECT_EQ(RedisTrajectoryStore::Open(client_, "job", settings_).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(RedisStoreFault, AStoreOfAnotherFormatIsRefusedAndCanBeRemoved) {
  (void)store();
  const std::string config = Redis({"GET", "{job}:config"}).text;
  const std::string number = StrCat("\"format\":", kRedisStoreFormat, ",");
  const size_t at = config.find(number);
  ASSERT_NE(at, std::string::npos) << config;
  struct Case {
    std::string written;  // in place of the number
    std::string message;
  };
  const Case cases[] = {
      {"", "store of job job: format 1 found, this program needs 3: finish the job with the older"},
      {"\"format\":2,", "format 2 found, this program needs 3: finish the job with the older"},
      {"\"format\":6,", "format 6 found, this program needs 3: finish the job with the newer"},
  };
  for (const Case& c : cases) {
    std::string other = config;
    other.replace(at, number.size(), c.written);
    Redis({"SET", "{job}:config", other});
    const absl::Status opened = RedisTrajectoryStore::Open(client_, "job").status();
    EXPECT_EQ(opened.code(), kPrecondition);
    EXPECT_THAT(Message(opened), HasSubstr(c.message));
    EXPECT_THAT(Message(opened), HasSubstr("or delete it and submit it again"));
    EXPECT_EQ(RedisTrajectoryStore::Create(client_, options_, origin_).status(), opened);
  }
  Redis({"SET", "{job}:config", "{\"format\":\"two\"}"});
  EXPECT_EQ(RedisTrajectoryStore::Open(client_, "job").status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_TRUE(DeleteJobKeys(*client_, {"job"}).ok());
  EXPECT_THAT(Keys("{job}:*"), IsEmpty());
  EXPECT_TRUE(RedisTrajectoryStore::Create(client_, options_, origin_, settings_).ok());
}

TEST_F(RedisStoreFault, RefusesJobNamesThatAreNoKeyPrefix) {
  StartServer();
  for (const char* job : {"", "a/b", "a}b", "a b", "a*"}) {
    options_.job = job;
    EXPECT_EQ(RedisTrajectoryStore::Create(client_, options_, origin_).status().code(), kInvalid);
    EXPECT_EQ(RedisTrajectoryStore::Open(client_, job).status().code(), kInvalid);
    EXPECT_EQ(DeleteJobKeys(*client_, {job}).status().code(), kInvalid);
  }
}

TEST_F(RedisStoreFault, DeleteRemovesOneStoreAndFencesItsObjects) {
  Produce(2, 0);
  Redis({"SET", "{job2}:state", "kept"});
  ASSERT_TRUE(DeleteJobKeys(*client_, {"job"}).ok());
  EXPECT_EQ(Keys("*").size(), 1u);
  EXPECT_EQ(store().Stats().status().code(), absl::StatusCode::kNotFound);
  // A fork takes the name; the old object must not touch it.
  StoreOrigin fork;
  fork.policy = {1, 4};
  fork.epoch = 7;
  fork.resumed = true;
  auto forked = RedisTrajectoryStore::Create(client_, options_, fork, settings_);
  ASSERT_TRUE(forked.ok()) << forked.status();
  EXPECT_EQ(store().Sweep().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*forked)->Stats()->committed_version, 4);
}

TEST_F(RedisStoreFault, ALateRemovalLeavesTheStoreOfALaterJobAlone) {
  options_.generation = 7;
  (void)store();
  Redis({"SET", "{job}:events", "of the later job"});
  const std::string before = Everything();
  const absl::Status late = DeleteJobKeys(*client_, {"job", /*generation=*/6}).status();
  EXPECT_EQ(late.code(), kPrecondition);
  EXPECT_THAT(Message(late), HasSubstr("generation 7, later than 6"));
  EXPECT_EQ(Everything(), before);
  EXPECT_TRUE(DeleteJobKeys(*client_, {"job", /*generation=*/7}).ok());
  EXPECT_THAT(Keys("*"), IsEmpty());
}

TEST_F(RedisStoreFault, AFormerLeaderRemovesNothing) {
  (void)store();
  Redis({"HSET", "{freshet}:jobs:meta", "fence", "5"});
  const std::string before = Everything();
  EXPECT_EQ(DeleteJobKeys(*client_, {"job", 0, /*fence=*/4}).status().code(), kPrecondition);
  EXPECT_EQ(Everything(), before);
  EXPECT_TRUE(DeleteJobKeys(*client_, {"job", 0, /*fence=*/5}).ok());
  EXPECT_THAT(Keys("{job}:*"), IsEmpty());
}

// Stores of older formats may have no generation.
TEST_F(RedisStoreFault, AStoreWithoutAGenerationIsRemoved) {
  (void)store();
  std::string config = Redis({"GET", "{job}:config"}).text;
  const std::string generation = "\"generation\":0,";
  ASSERT_NE(config.find(generation), std::string::npos) << config;
  config.erase(config.find(generation), generation.size());
  Redis({"SET", "{job}:config", config});
  EXPECT_TRUE(DeleteJobKeys(*client_, {"job"}).ok());
  EXPECT_THAT(Keys("*"), IsEmpty());
}

TEST_F(RedisStoreFault, AStoreMadeAnewRefusesObjectsOfTheOldOne) {
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(DeleteJobKeys(*client_, {"job"}).ok());
  const auto anew = NewStore();  // the same values
  ASSERT_TRUE(anew->PutPrompts({Prompt{0, 0, {1}, {}}}).ok());
  ASSERT_EQ(anew->LeasePrompts({"w1", "", {0, 0}, 1})->leases.at(0).token, lease.token);
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), absl::StatusCode::kNotFound);
}

TEST_F(RedisStoreFault, AHalfRemovedStoreIsNoStore) {
  (void)store();
  Redis({"DEL", "{job}:state"});
  EXPECT_EQ(RedisTrajectoryStore::Open(client_, "job", settings_).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(RedisTrajectoryStore::Create(client_, options_, origin_, settings_).status().code(),
            kPrecondition);
  ASSERT_TRUE(DeleteJobKeys(*client_, {"job"}).ok());
  EXPECT_NE(NewStore(), nullptr);
}

TEST_F(RedisStoreFault, AnyProcessGoesOnWhereAnotherStopped) {
  OpenEpoch();
  Produce(2, 0);
  const auto batch = NextBatch(1);
  // Another object has not seen the batch that it commits.
  const auto other = NewStore();
  const auto receipt = other->CommitStep(epoch_, 1, Ordinals(batch), "hash1");
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  std::string digest = InitialDigest();
  for (const char* uid : {"job/0/0/0", "job/0/0/1", "job/1/0/0", "job/1/0/1"}) {
    digest = ExtendDigest(digest, uid);
  }
  EXPECT_EQ(receipt->digest, digest);
  EXPECT_EQ(store().CommitStep(epoch_, 1, Ordinals(batch), "hash1")->digest, digest);
  const auto reopened = other->OpenEpoch("t1", {0, 0});
  ASSERT_TRUE(reopened.ok());
  EXPECT_EQ(reopened->redo.at(0).uids.size(), 4u);
  EXPECT_EQ(store().NextBatch(epoch_, 2).status().code(), kPrecondition);
}

TEST_F(RedisStoreFault, ARestartLosesNothing) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  Produce(1, 1);
  const auto leases = Lease(1, 1);
  ASSERT_TRUE(store().PutSample(leases[0].token, 0, ResponseAt(1)).ok());
  const std::string stats = Text(*store().Stats());
  const std::string ledger = Text(*store().ReadLedger(0, 1000));
  ASSERT_TRUE(server_->Restart().ok());
  EXPECT_EQ(Text(*store().Stats()), stats);
  EXPECT_EQ(Text(*store().ReadLedger(0, 1000)), ledger);
  ASSERT_TRUE(store().PutSample(leases[0].token, 1, ResponseAt(1)).ok());
  ScoreAll();
  EXPECT_EQ(Train(2).policy.version, 2);
}

// A worker puts samples as fast as it can; Redis is killed in the middle.
TEST_F(RedisStoreFault, EveryAcknowledgedSampleSurvivesAKill) {
  options_.group_size = 64;
  options_.staleness.groups_per_step = 50;
  OpenEpoch();
  const auto leases = Lease(0, 20);
  std::atomic<int> acknowledged{0};
  std::set<std::string> uids;
  Notification under_way;
  std::thread worker([&] {
    for (const GroupLease& lease : leases) {
      for (const int32_t index : lease.missing) {
        if (!store().PutSample(lease.token, index, ResponseAt(0, 50)).ok()) return;
        uids.insert(SampleUid("job", {lease.ordinal, lease.attempt, index}));
        if (++acknowledged == 200) under_way.Notify();
      }
    }
  });
  ASSERT_TRUE(under_way.WaitFor(kGuard));
  server_->Kill();
  worker.join();
  ASSERT_TRUE(server_->Restart().ok());
  const int64_t put = store().Stats()->samples_put;
  EXPECT_GE(put, acknowledged.load());
  EXPECT_LE(put, acknowledged.load() + 1);  // the call that was cut off
  std::set<std::string> found;
  const auto rows = store().LeaseRows(Task::kScore, "r0", 10'000);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const RowLease& row : *rows) found.insert(row.sample.uid);
  EXPECT_TRUE(std::includes(found.begin(), found.end(), uids.begin(), uids.end()));
}

TEST_F(RedisStoreFault, AFullServerRefusesAndChangesNothing) {
  const auto leases = Lease(0, 2);
  ASSERT_TRUE(store().PutSample(leases[0].token, 0, ResponseAt(0)).ok());
  const auto rows = *store().LeaseRows(Task::kScore, "r0", 1);
  PutPrompts(2);
  const std::string before = Everything();
  LimitMemory();
  EXPECT_EQ(store().PutSample(leases[0].token, 1, ResponseAt(0, 2000)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store().PutPrompts({Prompt{9, 0, {1}, {}}}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store().LeasePrompts({"w1", "", {0, 0}, 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  Redis({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_EQ(Everything(), before);
  EXPECT_TRUE(store().PutSample(leases[0].token, 1, ResponseAt(0, 2000)).ok());
  EXPECT_TRUE(store().PutFields(Task::kScore, rows.at(0).token, ScoreOf(1)).ok());
}

TEST_F(RedisStoreFault, AFullServerStillTrainsAndFreesMemory) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    if (step < 3) Train(step);
  }
  LimitMemory();
  Train(3);
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  ASSERT_TRUE(store().MarkDurable(epoch_, 3, "sha3").ok());
  ASSERT_TRUE(store().TrimLedger(5).ok());
  const size_t keys = Keys("*").size();
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_LT(Keys("*").size(), keys);
}

TEST_F(RedisStoreFault, AFullServerStillTakesScores) {
  OpenEpoch();
  for (const GroupLease& lease : Lease(0, 2)) Finish(lease, 0);
  LimitMemory();
  ScoreAll();
  EXPECT_EQ(Train(1).policy.version, 1);
}

TEST_F(RedisStoreFault, LostScriptsAreSentAgain) {
  OpenEpoch();
  const auto leases = Lease(0, 2);
  Redis({"SCRIPT", "FLUSH"});
  for (const GroupLease& lease : leases) Finish(lease, 0);
  Redis({"SCRIPT", "FLUSH"});
  ScoreAll();
  Redis({"SCRIPT", "FLUSH"});
  EXPECT_EQ(Train(1).policy.version, 1);
}

TEST_F(RedisStoreFault, AChangeByAnotherProcessWakesAWaiter) {
  const auto other = NewStore();
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  std::thread writer([&] { EXPECT_TRUE(other->PutPrompts({Prompt{0, 0, {1}, {}}}).ok()); });
  EXPECT_GT(store().AwaitChange(Topic::kAdmission, seen, kGuard), seen);
  writer.join();
}

TEST_F(RedisStoreFault, AChangeOfATopicThatIsAskedForLaterWakesAWaiter) {
  const auto other = NewStore();
  const uint64_t rows = store().ChangeCount(Topic::kRows);
  EXPECT_EQ(store().AwaitChange(Topic::kRows, rows, absl::Milliseconds(50)), rows);
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  std::thread writer([&] { EXPECT_TRUE(other->PutPrompts({Prompt{0, 0, {1}, {}}}).ok()); });
  EXPECT_GT(store().AwaitChange(Topic::kAdmission, seen, kGuard), seen);
  writer.join();
}

TEST_F(RedisStoreFault, AChangeDuringACutConnectionWakesAWaiter) {
  const auto other = NewStore();
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  std::atomic<uint64_t> count{seen};
  std::thread waiter([&] { count = store().AwaitChange(Topic::kAdmission, seen, kGuard); });
  Redis({"CLIENT", "KILL", "TYPE", "pubsub"});
  EXPECT_TRUE(other->PutPrompts({Prompt{0, 0, {1}, {}}}).ok());
  waiter.join();
  EXPECT_GT(count.load(), seen);
}

TEST_F(RedisStoreFault, ARestartedServerWakesWaiters) {
  const auto other = NewStore();
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  std::atomic<uint64_t> count{seen};
  std::thread waiter([&] { count = store().AwaitChange(Topic::kAdmission, seen, kGuard); });
  server_->Kill();
  ASSERT_TRUE(server_->Restart().ok());
  EXPECT_TRUE(other->PutPrompts({Prompt{0, 0, {1}, {}}}).ok());
  waiter.join();
  EXPECT_GT(count.load(), seen);
}

TEST_F(RedisStoreFault, AnAbsentServerIsUnavailable) {
  (void)store();
  server_->Kill();
  EXPECT_EQ(store().Stats().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store().PutPrompts({Prompt{0, 0, {1}, {}}}).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server_->Restart().ok());
  EXPECT_EQ(store().PutPrompts({Prompt{0, 0, {1}, {}}})->accepted, 1);
}

TEST_F(RedisStoreFault, LeasesAreExtendedByTheLengthOfAnOutage) {
  settings_.outage_threshold = absl::Seconds(8);  // of a lease TTL of 30 s
  const GroupLease lease = Lease(0, 1)[0];
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(*store().Sweep(), 0);
  clock_.Advance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_THAT(*store().RenewLeases("w0", {lease.token}), IsEmpty());
  EXPECT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
}

TEST_F(RedisStoreFault, RowLeasesAreExtendedByTheLengthOfAnOutageToo) {
  settings_.outage_threshold = absl::Seconds(8);
  options_.max_row_failures = 1;
  const auto leases = Lease(0, 2);  // until 30 s
  Finish(leases[0], 0);
  int64_t expired = 0;
  const auto pass = [&](absl::Duration time) {
    clock_.Advance(time);
    expired += *store().Sweep();
  };
  for (int i = 0; i < 4; ++i) pass(absl::Seconds(5));
  std::vector<int64_t> rows;  // until 50 s
  const auto leased = *store().LeaseRows(Task::kScore, "r0", 2);
  for (const RowLease& row : leased) rows.push_back(row.token);
  pass(absl::Minutes(5));
  EXPECT_EQ(expired, 0);
  for (int i = 0; i < 3; ++i) pass(absl::Seconds(5));
  EXPECT_EQ(expired, 1) << "that of the group alone";
  EXPECT_THAT(*store().RenewLeases("r0", rows), IsEmpty());
}

TEST_F(RedisStoreFault, LeasesExpireInTimeWhenSomebodyIsThere) {
  settings_.outage_threshold = absl::Seconds(8);
  const GroupLease lease = Lease(0, 1)[0];
  int64_t expired = 0;
  for (int second = 0; second < 31; ++second) {
    clock_.Advance(absl::Seconds(1));
    expired += *store().Sweep();
  }
  EXPECT_EQ(expired, 1);
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), kPrecondition);
}

TEST_F(RedisStoreFault, LeasesRunByTheServersClock) {
  settings_.clock = nullptr;
  options_.lease_ttl = absl::Hours(1);
  const GroupLease lease = Lease(0, 1)[0];
  const RedisReply time = Redis({"TIME"});
  const absl::Time now = absl::FromUnixSeconds(std::stoll(time.items.at(0).text));
  EXPECT_GT(lease.expires, now + absl::Minutes(50));
  EXPECT_LT(lease.expires, now + absl::Minutes(70));
  EXPECT_EQ(*store().Sweep(), 0);
}

TEST_F(RedisStoreFault, ExpiryByTheServersClock) {
  settings_.clock = nullptr;
  settings_.outage_threshold = absl::ZeroDuration();
  options_.lease_ttl = absl::Microseconds(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), kPrecondition);
  EXPECT_EQ(store().Stats()->leases_expired, 1);
}

}  // namespace
}  // namespace freshet
