// Stores on a Redis whose memory is nearly used up: who gets groups, and that jobs end.
#include <deque>

#include "datastore/redis/redis_reading.h"
#include "tests/datastore/redis/redis_store_fixture.h"

namespace freshet {
namespace {

TEST(MemoryPressure, BeginsAtItsShareOfTheLimit) {
  RedisReading reading;
  reading.used_bytes = 849;
  reading.bound_bytes = 1000;
  EXPECT_EQ(PressedPercent(reading), 0);
  reading.used_bytes = 870;
  EXPECT_EQ(PressedPercent(reading), 87);
  EXPECT_EQ(PressureText(87), "redis is at 87 % of its memory limit");
  reading.bound_bytes = 0;
  EXPECT_EQ(PressedPercent(reading), 0);
}

// All members of one job; in a turn each of them does what it can.
class SmallJob {
 public:
  SmallJob(const RedisServer& server, StoreOptions options, RedisStoreSettings settings)
      : last_step_(options.last_step) {
    auto store = RedisTrajectoryStore::Create(server.Client(), std::move(options), {}, settings);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    epoch_ = store_->OpenEpoch("t0", {0, 0})->epoch;
  }
  bool done() const { return version_ == last_step_; }
  int64_t version() const { return version_; }
  int64_t refused() const { return refused_; }

  void Turn() {
    Prompt prompt;
    prompt.ordinal = next_ordinal_;
    prompt.prompt_ids = {1, 2, 3};
    const auto fed = store_->PutPrompts({prompt});
    if (fed.ok()) next_ordinal_ += fed->accepted;
    const auto leased = store_->LeasePrompts({"w0", "", {0, version_}, 4});
    if (leased.ok()) running_.insert(running_.end(), leased->leases.begin(), leased->leases.end());
    while (!running_.empty() && Finish(running_.front())) running_.pop_front();
    Train();
    EXPECT_TRUE(store_->Sweep().ok());
  }

 private:
  bool Finish(const GroupLease& lease) {
    std::vector<SamplePut> puts;
    for (const int32_t index : lease.missing) {
      auto score = std::make_shared<Score>();
      score->reward = index;
      puts.push_back(
          {lease.token, index, std::make_shared<Response>(ResponseAt(version_, 2000)), score});
    }
    const auto statuses = store_->PutSamples(puts);
    if (statuses.ok()) return true;
    EXPECT_EQ(statuses.status().code(), absl::StatusCode::kResourceExhausted) << statuses.status();
    ++refused_;
    return false;
  }
  // As TrainerLoop, but makes checkpoints only when it is asked to.
  void Train() {
    if (done()) return;
    const auto batch = store_->NextBatch(epoch_, version_ + 1);
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (batch->ready) {
      std::vector<int64_t> ordinals;
      for (const TrainGroup& group : batch->groups) ordinals.push_back(group.ordinal);
      ASSERT_TRUE(store_->CommitStep(epoch_, version_ + 1, ordinals, "hash").ok());
      ++version_;
    } else if (batch->store_full && version_ != checkpointed_) {
      ASSERT_TRUE(store_->MarkDurable(epoch_, version_, "sha").ok());
      checkpointed_ = version_;
    }
  }

  const int64_t last_step_;
  std::unique_ptr<RedisTrajectoryStore> store_;
  int64_t epoch_ = 0;
  int64_t version_ = 0;
  int64_t checkpointed_ = 0;
  int64_t next_ordinal_ = 0;
  int64_t refused_ = 0;
  std::deque<GroupLease> running_;
};

class RedisMemory : public RedisStoreTest {
 protected:
  RedisMemory() { settings_.memory_period = absl::ZeroDuration(); }
  int64_t Used() { return ParseRedisInfo(Redis({"INFO", "memory"}).text).used_bytes; }
  void Limit(int64_t bytes) { Redis({"CONFIG", "SET", "maxmemory", StrCat(bytes)}); }
};

TEST_F(RedisMemory, NearTheLimitAJobGetsTheGroupsOfItsNextStepAndIsAskedForACheckpoint) {
  OpenEpoch();
  PutPrompts(4);
  Redis({"SET", "others", std::string(16 << 20, 'x')});  // beside it, the samples are small
  EXPECT_FALSE(NextBatch(1).store_full);
  Limit(Used() * 10 / 9);
  const auto first = store().LeasePrompts({"w0", "", {0, 0}, 4});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->leases.size(), 2u);  // B, of the 2 * B that the bound admits
  EXPECT_THAT(first->reason, HasSubstr(" % of its memory limit: from 85 % on a job gets only the 2 "
                                       "groups of its next step, and 2 are outstanding"));
  Limit(Used() * 10 / 9);  // again: Redis may have freed buffers of its connections
  EXPECT_TRUE(NextBatch(1).store_full);
  for (const GroupLease& lease : first->leases) Finish(lease, 0);
  Limit(Used() * 2);
  EXPECT_EQ(store().LeasePrompts({"w0", "", {0, 0}, 4})->leases.size(), 2u);
  EXPECT_FALSE(NextBatch(1).store_full);
}

// Together they train eight times as much as the server holds.
TEST_F(RedisMemory, TwoJobsThatFillTheServerBothEnd) {
  StartServer({{"appendfsync", "no"}});
  options_.last_step = 60;
  options_.capacity_groups = 1000;
  std::vector<std::unique_ptr<SmallJob>> jobs;
  for (const char* name : {"a", "b"}) {
    options_.job = name;
    jobs.push_back(std::make_unique<SmallJob>(*server_, options_, settings_));
  }
  Limit(Used() + (3 << 20));
  for (int turn = 0; turn < 1000 && !(jobs[0]->done() && jobs[1]->done()); ++turn) {
    for (const auto& job : jobs) job->Turn();
  }
  for (const auto& job : jobs) {
    EXPECT_EQ(job->version(), 60);
    EXPECT_EQ(job->refused(), 0);
  }
}

}  // namespace
}  // namespace freshet
