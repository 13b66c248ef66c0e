#include "datastore/memory/in_memory_trajectory_store.h"

#include <atomic>
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
