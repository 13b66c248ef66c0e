// A scorer or a store that is unavailable for a while.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/services/reward/worker/reward_worker_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {
namespace {

using RewardWorkerOutageTest = RewardWorkerTest;

TEST_F(RewardWorkerOutageTest, GoesOnAfterAStoreError) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(1);
  store_.FailCalls(1, absl::UnavailableError("down"));
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(worker.counters().store_errors, 1);
  EXPECT_FALSE(worker.counters().fenced);
}

TEST_F(RewardWorkerOutageTest, ScoresThatTheStoreDoesNotTakeArePutAgain) {
  int calls = 0;
  Use([&calls](const ScoreInput&) { return ComponentScore{1.0 * ++calls}; });
  AddRows(2);
  store_.FailPuts(2, absl::ResourceExhaustedError("redis is at its memory limit"));
  FakeClock clock;
  RewardWorkerOptions options;
  RewardWorker worker(store_, scorer_, Decode, options, clock);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().unsent, 2);
  EXPECT_EQ(worker.WaitsFor(),
            "scores wait for the datastore since 0: redis is at its memory limit");
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 1) << "not again at once";
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 2);
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 2) << "the pause doubles";
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(calls, 2) << "each row is scored once";
  EXPECT_EQ(store_.score(1)->reward, 2);
  EXPECT_EQ(worker.counters().lost, 0);
  EXPECT_EQ(worker.counters().unsent, 0);
  EXPECT_EQ(worker.WaitsFor(), "");
}

TEST_F(RewardWorkerOutageTest, ScoresThatAStoreWithoutTheJobRefusesAreLost) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(2);
  store_.FailPuts(1, absl::NotFoundError("the store is deleted"));
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().lost, 2);
  EXPECT_EQ(worker.counters().unsent, 0);
}

TEST_F(RewardWorkerOutageTest, RunLeasesNoRowWhileTooManyScoresWait) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(50);
  store_.FailPuts(1'000'000, absl::UnavailableError("down"));
  RewardWorkerOptions options;
  options.max_in_hand = 5;
  options.max_wait = absl::Milliseconds(1);
  options.first_retry = options.longest_retry = absl::Milliseconds(1);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  const auto await = [this](const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + kGuard;
    while (!holds() && absl::Now() < deadline) {
      store_.AwaitChange(Topic::kBatch, store_.ChangeCount(Topic::kBatch), absl::Milliseconds(10));
    }
    return holds();
  };
  EXPECT_TRUE(await([this] { return store_.leased_rows() == 5; }));
  const int puts = store_.put_rows_calls();
  EXPECT_TRUE(await([this, puts] { return store_.put_rows_calls() > puts + 20; }));
  EXPECT_EQ(store_.leased_rows(), 5U);
  EXPECT_EQ(worker.counters().unsent, 5);
  store_.FailPuts(0, absl::OkStatus());
  EXPECT_TRUE(AwaitScored(50));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(worker.counters().ok, 50);
  EXPECT_EQ(worker.counters().lost, 0);
}

TEST_F(RewardWorkerOutageTest, ScoresThatAreLeftAtTheStopAreTriedOnceMore) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(2);
  store_.FailPuts(1, absl::UnavailableError("down"));
  RewardWorkerOptions options;
  options.first_retry = absl::Hours(1);
  RewardWorker worker(store_, scorer_, Decode, options);
  EXPECT_EQ(worker.RunOnce(), 0);
  std::stop_source stop;
  stop.request_stop();
  worker.Run(stop.get_token());
  EXPECT_EQ(store_.scored_rows(), 2U);
}

// Loses the first `lost` answers to LeaseRows.
class LosesAnswers final : public ForwardingTrajectoryStore {
 public:
  LosesAnswers(TrajectoryStore& store, int lost) : ForwardingTrajectoryStore(store), left_(lost) {}
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    ids.push_back(request.request_id);
    absl::StatusOr<std::vector<RowLease>> rows = ForwardingTrajectoryStore::LeaseRowsFor(request);
    if (left_-- > 0) return absl::UnavailableError("the connection broke");
    return rows;
  }
  std::vector<std::string> ids;

 private:
  int left_;
};

TEST_F(RewardWorkerOutageTest, ACallWhoseAnswerWasLostIsRepeatedUnderItsId) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  LosesAnswers lossy(store_, 2);
  RewardWorkerOptions options;
  options.request_prefix = "a/";
  RewardWorker worker(lossy, scorer_, Decode, options);
  for (int i = 0; i < 4; ++i) worker.RunOnce();
  EXPECT_THAT(lossy.ids, testing::ElementsAre("a/0", "a/0", "a/0", "a/1"));
}

TEST_F(RewardWorkerOutageTest, AScorerThatIsAwayFailsNoRow) {
  bool away = true;
  int calls = 0;
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    ++calls;
    if (away) return absl::UnavailableError("no route to host:1");
    return ComponentScore{1};
  });
  AddRows(2);
  FakeClock clock;
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions(), clock);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(worker.RunOnce(), 0);
    clock.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(worker.WaitsFor(),
            "rows wait for their scorer since 1m40s: component c: no route to host:1");
  EXPECT_THAT(store_.failures(0), testing::IsEmpty());
  EXPECT_EQ(worker.counters().failed(), 0);
  EXPECT_EQ(worker.counters().returned, calls);
  away = false;
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(worker.WaitsFor(), "");
}

TEST_F(RewardWorkerOutageTest, ARowInWhoseMiddleTheScorerGoesAwayFailsEverySecondTime) {
  Use([](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    if (input.completion == "a") return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(2);
  RewardWorker worker = MakeWorker(/*batch_rows=*/1);
  for (size_t failures = 0; failures < 3; ++failures) {
    EXPECT_EQ(worker.RunOnce(), 0);
    EXPECT_EQ(store_.failures(0).size(), failures);
    EXPECT_EQ(worker.RunOnce(), 0);
    EXPECT_EQ(store_.failures(0).size(), failures + 1);
    EXPECT_THAT(worker.WaitsFor(), testing::HasSubstr("rows wait for their scorer"));
  }
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(worker.counters().returned, 3);
  EXPECT_EQ(worker.counters().infra_errors, 3);
}

TEST_F(RewardWorkerOutageTest, ARowThatIsScoredIsNoSuspectAnyMore) {
  int calls = 0;
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    if (++calls % 2 == 1) return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 1);
  AddRows(1);  // with the same name
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_THAT(store_.failures(1), testing::IsEmpty());
  EXPECT_EQ(worker.RunOnce(), 1);
}

TEST_F(RewardWorkerOutageTest, RunBlamesNoRowForAScorerThatGoesAwayFromSeveral) {
  std::atomic<int> inside{0}, calls{0};
  Notification met;
  Use([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    const bool kills = input.completion == "a";
    if (kills) ++calls;
    if (!met.HasBeenNotified()) {
      if (++inside == 2) met.Notify();
      met.WaitFor(kGuard);
      return absl::AbortedError("the connection broke");
    }
    if (kills) return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(2);
  RewardWorkerOptions options;
  options.parallel = 2;
  options.max_wait = absl::Milliseconds(1);
  options.first_retry = options.longest_retry = absl::ZeroDuration();
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(1));
  thread.request_stop();
  thread.join();
  EXPECT_THAT(store_.failures(1), testing::IsEmpty());
  EXPECT_EQ(store_.failures(0).size(), 3u);
  EXPECT_EQ(calls, 1 + 2 * 3);
}

TEST_F(RewardWorkerOutageTest, RunTriesAScorerThatIsAwayLessAndLessOften) {
  std::atomic<int> calls{0};
  std::atomic<bool> away{true};
  Notification tried[4];
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    if (!away) return ComponentScore{1};
    tried[std::min(calls++, 3)].Notify();
    return absl::UnavailableError("away");
  });
  AddRows(100);
  FakeClock clock;
  RewardWorkerOptions options;
  options.parallel = 4;
  options.batch_rows = 1;
  options.max_wait = absl::Milliseconds(1);
  options.put_period = absl::ZeroDuration();
  RewardWorker worker(store_, scorer_, Decode, options, clock);
  EXPECT_EQ(worker.RunOnce(), 0);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  clock.Advance(options.first_retry);
  EXPECT_TRUE(tried[1].WaitFor(kGuard));
  // One row is tried after each pause; pauses double.
  while (worker.counters().returned < 2) std::this_thread::yield();
  clock.Advance(2 * options.first_retry - absl::Milliseconds(1));
  EXPECT_EQ(calls, 2);
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(tried[2].WaitFor(kGuard));
  while (worker.counters().returned < 3) std::this_thread::yield();
  EXPECT_EQ(calls, 3);
  away = false;
  clock.Advance(options.longest_retry);
  EXPECT_TRUE(AwaitScored(100));
}

}  // namespace
}  // namespace freshet
