#include "datastore/memory/in_memory_trajectory_store.h"

#include <atomic>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/trajectory_store_contract.h"

namespace freshet {
namespace {

std::unique_ptr<TrajectoryStore> CreateInMemory(StoreOptions options, StoreOrigin origin,
                                                FakeClock& clock) {
  auto store = InMemoryTrajectoryStore::Create(std::move(options), std::move(origin), clock);
  return store.ok() ? std::move(store).value() : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Memory, TrajectoryStoreContract,
                         testing::Values(StoreBackend{"InMemory", CreateInMemory}),
                         StoreBackendName);
INSTANTIATE_TEST_SUITE_P(Memory, TrajectoryStoreCurationContract,
                         testing::Values(StoreBackend{"InMemory", CreateInMemory}),
                         StoreBackendName);
INSTANTIATE_TEST_SUITE_P(Memory, EvaluationStoreContract,
                         testing::Values(StoreBackend{"InMemory", CreateInMemory}),
                         StoreBackendName);

// What curation knows is restored in a store that forks from the first one.
class InMemoryCuration : public TrajectoryStoreCurationContract {
 protected:
  InMemoryTrajectoryStore& memory() { return dynamic_cast<InMemoryTrajectoryStore&>(store()); }
  // The process ends; the next one starts from a checkpoint of `version`.
  void Fork(int64_t version) {
    StoreOrigin origin;
    origin.policy = {1, version};
    origin.epoch = 1;
    origin.resumed = true;
    origin.cursor.low_water = next_ordinal_;
    ReplaceStore(origin);
  }
  absl::Status Restore(const CurationState& state) { return memory().RestoreCuration(state); }
};

INSTANTIATE_TEST_SUITE_P(Memory, InMemoryCuration,
                         testing::Values(StoreBackend{"InMemory", CreateInMemory}),
                         StoreBackendName);

TEST_P(InMemoryCuration, AForkReplaysSuccessesOfItsOriginUpToTheirAge) {
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  Group(7, 1, {0, 1});
  Train(2);
  const CurationState state = memory().Curation();
  Fork(2);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_EQ(Stats().pooled_successes, 2);
  OpenEpoch(2);
  Group(0, 2, {0, 0.5});
  const NextBatchReply batch = NextBatch(3);
  ASSERT_TRUE(batch.ready) << batch.reason;
  const SampleView& copy = batch.groups[0].samples[0].sample;
  EXPECT_EQ(copy.replay_of, "job/0/0/1");
  EXPECT_EQ(copy.response->response_ids, std::vector<int32_t>(4, 1));
  EXPECT_EQ(copy.score->reward, 1.0);
  EXPECT_EQ(batch.groups[0].samples[0].min_version, 0);
  Train(3);
  TrainOthers(4, 4);
  Group(0, 4, {0, 0});  // may be trained from version 5 on, where its success is too old
  EXPECT_EQ(Stats().replayed_samples, 1);
  Train(5);
  Group(7, 4, {0, 0});
  EXPECT_EQ(Stats().replayed_samples, 2) << "one version younger";
}

TEST_P(InMemoryCuration, AForkKnowsTheHistoriesOfItsOrigin) {
  Adapt();
  Group(0, 0, {1, 1, 1, 1});
  const CurationState state = memory().Curation();
  EXPECT_EQ(state.rows.size(), 1U);
  Fork(0);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_THAT(LeaseOf(0, 0).missing, SizeIs(2));
  EXPECT_EQ(memory().Curation().tasks, state.tasks);
}

TEST_P(InMemoryCuration, WhatTheOptionsDoNotAdmitIsLeftOut) {
  options_.adaptive = AdaptiveOptions{2, 1.0, 2.0};
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  Group(7, 1, {0, 3});
  const CurationState state = memory().Curation();
  EXPECT_EQ(state.successes.size(), 2U);
  const CurationState newest = memory().Curation(/*max_success_bytes=*/4 * 8);
  ASSERT_EQ(newest.successes.size(), 1U);
  EXPECT_EQ(newest.successes.begin()->second.oldest, 1);
  EXPECT_EQ(newest.left_out, 1);
  options_.replay->min_reward = 2;
  options_.adaptive->min_reward = 2;
  Fork(1);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_EQ(Stats().pooled_successes, 1);
  EXPECT_THAT(memory().Curation().rows, IsEmpty()) << "they counted other successes";
  options_.replay = ReplayOptions{4, 1.0, /*capacity=*/1, 1};
  Fork(1);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_EQ(memory().Curation().successes.begin()->second.oldest, 1) << "the newest one";
  options_.replay->capacity = 8;
  Fork(5);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_EQ(Stats().pooled_successes, 1) << "the other one is 5 versions old";
  options_.replay.reset();
  Fork(1);
  ASSERT_EQ(Restore(state), absl::OkStatus());
  EXPECT_EQ(Stats().pooled_successes, 0);
}

TEST_P(InMemoryCuration, AStateThatNoStoreHadIsRefused) {
  const auto with = [](const Response& response, double reward = 1, std::string uid = "job/0/0/0") {
    CurationState state;
    state.successes["row"] = {std::move(uid), std::make_shared<const Response>(response),
                              ScoreOf(reward).score};
    return state;
  };
  ASSERT_EQ(Restore(with(ResponseAt(0))), absl::OkStatus());
  EXPECT_EQ(Restore(with(ResponseAt(1))).code(), kInvalid) << "a version that is not committed";
  EXPECT_EQ(Restore(with(ResponseAt(0, 3, /*lineage=*/1))).code(), kInvalid);
  EXPECT_EQ(Restore(with(NotAskedAt(0))).code(), kInvalid);
  EXPECT_EQ(Restore(with(Response())).code(), kInvalid);
  EXPECT_EQ(Restore(with(ResponseAt(0), 1, "")).code(), kInvalid);
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Restore(with(ResponseAt(0), infinite)).code(), kInvalid);
  for (const RolloutHistory& impossible :
       {RolloutHistory{2, 1, 1}, RolloutHistory{-1, 1, 1}, RolloutHistory{0, 0, 0},
        RolloutHistory{1, infinite, 1}, RolloutHistory{1, 1, -1}}) {
    CurationState state;
    state.tasks["task"] = impossible;
    EXPECT_EQ(Restore(state).code(), kInvalid);
  }
  EXPECT_EQ(Stats().pooled_successes, 1) << "that of the good state";
}

StoreOptions SmallJob() {
  StoreOptions options;
  options.job = "job";
  options.staleness = {1, Disposition::kWait, 2, 8};
  options.group_size = 2;
  options.last_step = 20;
  options.capacity_groups = 100;
  options.max_queued_prompts = 10;
  return options;
}

TEST(InMemoryTrajectoryStore, RefusesOptionsAndOriginsThatDoNotValidate) {
  FakeClock clock;
  StoreOptions options = SmallJob();
  options.staleness.max = -1;
  EXPECT_EQ(InMemoryTrajectoryStore::Create(options, {}, clock).status().code(), kInvalid);
  StoreOrigin origin;
  origin.policy.version = -1;
  EXPECT_EQ(InMemoryTrajectoryStore::Create(SmallJob(), origin, clock).status().code(), kInvalid);
  origin = {};
  origin.epoch = int64_t{1} << 40;
  EXPECT_EQ(InMemoryTrajectoryStore::Create(SmallJob(), origin, clock).status().code(), kInvalid);
}

// Each role runs in its own thread and only waits in AwaitChange. The job must finish with each uid
// trained once.
TEST(InMemoryTrajectoryStore, RolesAsThreadsFinishAJob) {
  FakeClock clock;
  auto created = InMemoryTrajectoryStore::Create(SmallJob(), {}, clock);
  ASSERT_TRUE(created.ok()) << created.status();
  TrajectoryStore& store = **created;
  constexpr absl::Duration kGuard = absl::Seconds(10);
  std::atomic<int64_t> version{0};
  std::atomic<bool> done{false};

  std::thread controller([&] {
    int64_t ordinal = 0;
    while (!done) {
      const uint64_t seen = store.ChangeCount(Topic::kPrompts);
      Prompt prompt;
      prompt.ordinal = ordinal;
      if (store.PutPrompts({prompt})->accepted == 1) {
        ++ordinal;
        continue;
      }
      store.AwaitChange(Topic::kPrompts, seen, kGuard);
    }
  });
  const auto rollout = [&](const std::string& worker) {
    while (!done) {
      const uint64_t seen = store.ChangeCount(Topic::kAdmission);
      const int64_t engine = version;
      const auto reply = store.LeasePrompts({worker, "", {0, engine}, 2});
      for (const GroupLease& lease : reply->leases) {
        for (const int32_t index : lease.missing) {
          (void)store.PutSample(lease.token, index, ResponseAt(engine));
        }
      }
      if (reply->leases.empty()) store.AwaitChange(Topic::kAdmission, seen, kGuard);
    }
  };
  std::thread rollout0(rollout, "w0");
  std::thread rollout1(rollout, "w1");
  std::thread reward([&] {
    while (!done) {
      const uint64_t seen = store.ChangeCount(Topic::kRows);
      const auto rows = *store.LeaseRows(Task::kScore, "r0", 4);
      for (const RowLease& row : rows) {
        auto score = std::make_shared<Score>();
        score->reward = row.sample.key.index;
        (void)store.PutFields(Task::kScore, row.token, {score});
      }
      if (rows.empty()) store.AwaitChange(Topic::kRows, seen, kGuard);
    }
  });
  const int64_t epoch = store.OpenEpoch("t0", {0, 0})->epoch;
  for (int64_t step = 1; step <= 20;) {
    const uint64_t seen = store.ChangeCount(Topic::kBatch);
    const auto batch = *store.NextBatch(epoch, step);
    if (!batch.ready) {
      if (store.AwaitChange(Topic::kBatch, seen, kGuard) > seen) continue;
      ADD_FAILURE() << "no change for 10 s: " << batch.reason;
      break;
    }
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    EXPECT_TRUE(store.CommitStep(epoch, step, ordinals, "h").ok());
    version = step++;
  }
  done = true;
  store.Close();
  for (std::thread* thread : {&controller, &rollout0, &rollout1, &reward}) thread->join();

  std::set<std::string> uids;
  const std::vector<LedgerRow> ledger = *store.ReadLedger(0, 1000);
  for (const LedgerRow& row : ledger) {
    if (row.event != LedgerEvent::kTrained) continue;
    EXPECT_TRUE(uids.insert(row.uid).second) << row.uid;
    EXPECT_LE(row.train_version - row.min_version, 1);
  }
  EXPECT_EQ(uids.size(), 80u);  // 20 steps * 2 groups * 2 samples
}

}  // namespace
}  // namespace freshet
