// The threads of RewardWorker::Run.

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/services/reward/worker/reward_worker_fixture.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {
namespace {

using RewardWorkerRunTest = RewardWorkerTest;

TEST_F(RewardWorkerRunTest, RunScoresRowsThatComeLaterUntilStopped) {
  Notification first, last;
  Use([&](const ScoreInput& input) {
    (input.completion == "1" ? first : last).Notify();
    return ComponentScore{1};
  });
  RewardWorker worker = MakeWorker();
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  store_.AddRow({0, 0, 0}, {}, ResponseOf("1"));
  EXPECT_TRUE(first.WaitFor(kGuard));
  store_.AddRow({1, 0, 0}, {}, ResponseOf("2"));
  EXPECT_TRUE(last.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 2u);
}

// Notifies when a lease first returns fewer rows than requested.
class WatchedLeases final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    absl::StatusOr<std::vector<RowLease>> rows = ForwardingTrajectoryStore::LeaseRowsFor(request);
    const bool fewer = rows.ok() && std::ssize(*rows) < request.max_rows;
    if (fewer && !std::exchange(told_, true)) none_left.Notify();
    return rows;
  }
  Notification none_left;

 private:
  bool told_ = false;  // used only by the worker's leasing thread
};

TEST_F(RewardWorkerRunTest, RunLeasesNoMoreOftenThanItsPeriod) {
  WatchedLeases watched(store_);
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  RewardWorkerOptions options;
  options.lease_period = absl::Hours(1);
  RewardWorker worker(watched, scorer_, Decode, options);
  AddRows(1);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(watched.none_left.WaitFor(kGuard));
  store_.AddRow({1, 0, 0}, {}, ResponseOf("2"));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 1u);
}

TEST_F(RewardWorkerRunTest, RunScoresSeveralRowsAtTheSameTime) {
  Mutex mu;
  int running = 0;
  Notification three;
  Use([&](const ScoreInput&) {
    {
      MutexLock lock(mu);
      if (++running == 3) three.Notify();
    }
    // Blocks until three calls are in progress.
    EXPECT_TRUE(three.WaitFor(kGuard));
    return ComponentScore{1};
  });
  AddRows(3);
  RewardWorkerOptions options;
  options.parallel = 3;
  options.batch_rows = 1;
  options.max_wait = absl::Milliseconds(20);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(three.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 3u);
  EXPECT_EQ(worker.counters().ok, 3);
}

TEST_F(RewardWorkerRunTest, ParallelThreadsScoreEachRowOnce) {
  std::atomic<int> calls{0};
  Notification all;
  Use([&](const ScoreInput&) {
    if (++calls == 500) all.Notify();
    return ComponentScore{1};
  });
  AddRows(500);
  RewardWorkerOptions options;
  options.parallel = 4;
  options.max_wait = absl::Milliseconds(20);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(all.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(calls, 500);
  EXPECT_EQ(store_.scored_rows(), 500u);
}

TEST_F(RewardWorkerRunTest, ASlowRowHoldsBackNoOther) {
  Notification others_put;
  Use([&](const ScoreInput& input) {
    if (input.completion == "slow") others_put.WaitFor(kGuard);
    return ComponentScore{1};
  });
  store_.AddRow({0, 0, 0}, {}, ResponseOf("slow"));
  for (int i = 1; i <= 20; ++i) store_.AddRow({i, 0, 0}, {}, ResponseOf("quick"));
  RewardWorkerOptions options;
  options.parallel = 2;
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(20));
  EXPECT_EQ(store_.score(0), nullptr);
  others_put.Notify();
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 21u);
}

TEST_F(RewardWorkerRunTest, AScoreIsPutWhileEveryThreadIsBusyWithTheNext) {
  Notification others_put;
  Use([&](const ScoreInput& input) {
    if (input.completion == "slow") others_put.WaitFor(kGuard);
    return ComponentScore{1};
  });
  // Rows are leased one and two at a time, so the second quick row is held while the slow one runs.
  for (int i = 0; i < 2; ++i) store_.AddRow({i, 0, 0}, {}, ResponseOf("quick"));
  store_.AddRow({2, 0, 0}, {}, ResponseOf("slow"));
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions());
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(2));
  others_put.Notify();
  EXPECT_TRUE(AwaitScored(3));
}

TEST_F(RewardWorkerRunTest, WhatNoThreadCanScoreIsLeftToOtherWorkers) {
  Notification scoring, finish;
  Use([&](const ScoreInput&) {
    scoring.Notify();
    EXPECT_TRUE(finish.WaitFor(kGuard));
    return ComponentScore{1};
  });
  AddRows(3);
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions());
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(scoring.WaitFor(kGuard));
  EXPECT_EQ(store_.LeaseRows(Task::kScore, "another", 10)->size(), 2u);
  finish.Notify();
}

TEST_F(RewardWorkerRunTest, AStopGivesUpCallsThatWait) {
  Notification scoring;
  Use([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    Notification cancelled;
    const std::stop_callback on_cancel(input.cancel, [&] { cancelled.Notify(); });
    scoring.Notify();
    if (cancelled.WaitFor(kGuard)) return absl::CancelledError("given up");
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(scoring.WaitFor(kGuard));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 0u);
  EXPECT_THAT(store_.failures(0), testing::IsEmpty()) << "no fault of the row";
  EXPECT_EQ(worker.counters().lost, 1);
  EXPECT_EQ(worker.counters().failed(), 0);
}

// Counts AwaitChange calls for rows.
class CountingWaits final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    if (++waits_ == 50) fifty.Notify();
    return ForwardingTrajectoryStore::AwaitChange(topic, seen, timeout);
  }
  Notification fifty;

 private:
  std::atomic<int> waits_{0};
};

TEST_F(RewardWorkerRunTest, AsksForRowsWhenThereMayBeSome) {
  CountingWaits watched(store_);
  RewardWorkerOptions options;
  options.parallel = 4;
  options.max_wait = absl::Milliseconds(1);
  options.look_again = absl::Hours(1);
  RewardWorker worker(watched, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(watched.fifty.WaitFor(kGuard));
  EXPECT_EQ(store_.lease_rows_calls(), 1);
}

TEST_F(RewardWorkerRunTest, RunReturnsWithoutCloseOnceStopped) {
  RewardWorker worker = MakeWorker();
  Notification done;
  std::jthread thread([&](std::stop_token stop) {
    worker.Run(stop);
    done.Notify();
  });
  thread.request_stop();
  EXPECT_TRUE(done.WaitFor(kGuard));
}

TEST_F(RewardWorkerRunTest, WorkersShareTheRows) {
  std::atomic<int> calls{0};
  Use([&calls](const ScoreInput&) {
    ++calls;
    return ComponentScore{1};
  });
  AddRows(500);
  RewardWorker a = MakeWorker(7), b = MakeWorker(7);
  {
    std::jthread thread([&a] {
      while (a.RunOnce() > 0) {
      }
    });
    while (b.RunOnce() > 0) {
    }
  }
  EXPECT_EQ(calls, 500);
  EXPECT_EQ(store_.scored_rows(), 500u);
  EXPECT_EQ(a.counters().ok + b.counters().ok, 500);
}

}  // namespace
}  // namespace freshet
