// Rows that take longer to score than their lease lasts, over the real store.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(20);
constexpr absl::Duration kTtl = absl::Seconds(30);

class WatchedStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    absl::Status failure;
    {
      MutexLock lock(mu_);
      failure = std::exchange(failure_, absl::OkStatus());
    }
    auto lost = failure.ok() ? ForwardingTrajectoryStore::RenewLeases(worker, tokens)
                             : absl::StatusOr<std::vector<int64_t>>(failure);
    MutexLock lock(mu_);
    ++renewals_;
    changed_.NotifyAll();
    return lost;
  }
  bool AwaitRenewals(int count) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + kGuard;
    MutexLock lock(mu_);
    while (renewals_ < count && absl::Now() < deadline) changed_.WaitFor(mu_, kGuard);
    return renewals_ >= count;
  }
  void FailNextRenewal(absl::Status failure) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    failure_ = std::move(failure);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  int renewals_ ABSL_GUARDED_BY(mu_) = 0;
};

class RewardWorkerLeaseTest : public testing::Test {
 protected:
  RewardWorkerLeaseTest() {
    StoreOptions options;
    options.job = "job";
    options.staleness.max = 1;
    options.staleness.groups_per_step = 2;
    options.staleness.max_in_flight = 100;
    options.last_step = 100;
    options.capacity_groups = 1000;
    options.max_queued_prompts = 100;
    options.lease_ttl = kTtl;
    auto created = InMemoryTrajectoryStore::Create(options, {}, clock_);
    EXPECT_TRUE(created.ok()) << created.status();
    memory_ = *std::move(created);
    store_ = std::make_unique<WatchedStore>(*memory_);
    options_.renewal_check = absl::Milliseconds(1);
    options_.max_wait = absl::Milliseconds(1);
  }
  void AddRows(int64_t n) {
    std::vector<Prompt> prompts(static_cast<size_t>(n));
    for (size_t i = 0; i < prompts.size(); ++i) {
      prompts[i].ordinal = static_cast<int64_t>(i);
      prompts[i].prompt_ids = {1};
    }
    ASSERT_EQ(memory_->PutPrompts(prompts)->accepted, n);
    const auto leased = memory_->LeasePrompts({"w0", "", {0, 0}, n});
    ASSERT_EQ(leased->leases.size(), prompts.size());
    for (const GroupLease& lease : leased->leases) {
      Response response;
      response.response_ids = {7};
      response.behavior_logprobs = {-0.5F};
      response.loss_mask = {1};
      response.spans = {{{0, 0}, 0, 1}};
      response.finish = FinishReason::kStop;
      ASSERT_TRUE(memory_->PutSample(lease.token, 0, response).ok());
    }
  }
  // Starts a worker whose scorer signals when it begins and blocks until released or cancelled.
  void Start() {
    scorer_.Add("c", 1.0,
                std::make_unique<CallbackScorer>(
                    [this](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
                      const std::stop_callback give_up(input.cancel, [this] { finish_.Notify(); });
                      scoring_.Notify();
                      EXPECT_TRUE(finish_.WaitFor(kGuard));
                      if (input.cancel.stop_requested()) return absl::CancelledError("given up");
                      return ComponentScore{1};
                    }));
    worker_ = std::make_unique<RewardWorker>(
        *store_, scorer_, [](const std::vector<int32_t>&) { return "x"; }, options_, clock_);
    thread_ = std::jthread([this](std::stop_token stop) { worker_->Run(stop); });
    ASSERT_TRUE(scoring_.WaitFor(kGuard));
  }
  int64_t Scored() { return memory_->Stats()->transitions[static_cast<int>(GroupState::kScored)]; }
  bool AwaitScored(int64_t groups) {
    const absl::Time deadline = absl::Now() + kGuard;
    while (absl::Now() < deadline) {
      const uint64_t seen = memory_->ChangeCount(Topic::kBatch);
      if (Scored() >= groups) return true;
      memory_->AwaitChange(Topic::kBatch, seen, kGuard);
    }
    return false;
  }

  FakeClock clock_;
  std::unique_ptr<InMemoryTrajectoryStore> memory_;
  std::unique_ptr<WatchedStore> store_;
  CompositeScorer scorer_;
  RewardWorkerOptions options_;
  Notification scoring_, finish_;
  std::unique_ptr<RewardWorker> worker_;
  std::jthread thread_;
};

TEST_F(RewardWorkerLeaseTest, ARowThatTakesTwentyLeasesIsScored) {
  AddRows(1);
  Start();
  for (int third = 1; third <= 60; ++third) {
    clock_.Advance(kTtl / 3);
    ASSERT_TRUE(store_->AwaitRenewals(third));
    ASSERT_EQ(*memory_->Sweep(), 0);
  }
  finish_.Notify();
  EXPECT_TRUE(AwaitScored(1));
  thread_.request_stop();
  thread_.join();
  EXPECT_EQ(worker_->counters().ok, 1);
  EXPECT_EQ(worker_->counters().lost, 0);
}

TEST_F(RewardWorkerLeaseTest, RowsThatWaitTheirTurnAreRenewedToo) {
  options_.batch_rows = 3;
  AddRows(3);
  scorer_.Add("c", 1.0, std::make_unique<CallbackScorer>([this](const ScoreInput&) {
                clock_.Advance(kTtl / 2);
                return ComponentScore{1};
              }));
  RewardWorker worker(
      *store_, scorer_, [](const std::vector<int32_t>&) { return "x"; }, options_, clock_);
  EXPECT_EQ(worker.RunOnce(), 3);
}

TEST_F(RewardWorkerLeaseTest, ARenewalThatFailsIsTriedAgain) {
  AddRows(1);
  Start();
  store_->FailNextRenewal(absl::UnavailableError("away"));
  clock_.Advance(kTtl / 3);
  ASSERT_TRUE(store_->AwaitRenewals(2));
  clock_.Advance(kTtl - absl::Seconds(1));
  EXPECT_EQ(*memory_->Sweep(), 0);
  finish_.Notify();
  EXPECT_TRUE(AwaitScored(1));
}

// Loses the first answer to LeaseRows.
class LosesAnAnswer final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    absl::StatusOr<std::vector<RowLease>> rows = ForwardingTrajectoryStore::LeaseRowsFor(request);
    if (std::exchange(lost_, true)) return rows;
    return absl::UnavailableError("the connection broke");
  }

 private:
  bool lost_ = false;
};

TEST_F(RewardWorkerLeaseTest, RowsLeasedUnderALostAnswerAreScoredAtOnce) {
  AddRows(3);
  scorer_.Add("c", 1.0, std::make_unique<CallbackScorer>([](const ScoreInput&) {
                return ComponentScore{1};
              }));
  LosesAnAnswer lossy(*memory_);
  RewardWorker worker(
      lossy, scorer_, [](const std::vector<int32_t>&) { return "x"; }, options_, clock_);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 3) << "before any lease has ended";
}

TEST_F(RewardWorkerLeaseTest, ARowWhoseLeaseIsLostIsGivenUp) {
  AddRows(1);
  Start();
  ASSERT_EQ(*memory_->RevokeWorker(options_.worker), 1);
  clock_.Advance(kTtl / 3);
  ASSERT_TRUE(finish_.WaitFor(kGuard)) << "the scorer is told";
  thread_.request_stop();
  thread_.join();
  EXPECT_EQ(worker_->counters().lost, 1);
  EXPECT_EQ(worker_->counters().failed(), 0);
  EXPECT_EQ(memory_->LeaseRows(Task::kScore, "another", 10)->size(), 1U);
}

}  // namespace
}  // namespace freshet
