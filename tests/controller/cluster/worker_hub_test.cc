#include "controller/cluster/worker_hub.h"

#include "controller/jobs/record/deposed.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class WorkerHubTest : public testing::Test {
 protected:
  WorkerHubTest() { hub_ = MakeHub(1); }
  std::unique_ptr<WorkerHub> MakeHub(int64_t fence) {
    auto hub = WorkerHub::Create(records_, fence, clock_, WorkerHubOptions());
    EXPECT_TRUE(hub.ok()) << hub.status();
    return *std::move(hub);
  }
  DesiredAssignment Wish(const std::string& id, const HubWorker& worker) {
    return {id,    worker.name(), worker.epoch(), std::make_shared<const cluster::v1::Assign>(),
            false, nullptr};
  }
  // Advances the clock and checks the workers every 0.5 s.
  std::vector<LostWorker> Pass(absl::Duration time) {
    std::vector<LostWorker> all;
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(500)) {
      clock_.Advance(absl::Milliseconds(500));
      const auto lost = hub_->Check();
      EXPECT_TRUE(lost.ok()) << lost.status();
      all.insert(all.end(), lost->begin(), lost->end());
    }
    return all;
  }

  FakeClock clock_;
  InMemoryJobRecords records_;
  std::unique_ptr<WorkerHub> hub_;
  HubWorker rollout_{cluster::v1::ROLE_ROLLOUT, "r0"};
};

TEST_F(WorkerHubTest, AWorkerIsToldWhatAJobWantsOfIt) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  hub_->SetDesired("job", {Wish("job/rollout/1", rollout_)});
  EXPECT_EQ(rollout_.Work(), "job/rollout/1");
  hub_->SetDesired("job", {});
  EXPECT_EQ(rollout_.Work(), "");
  EXPECT_EQ(rollout_.unassigned(), 1);
}

TEST_F(WorkerHubTest, AWorkerThatJoinsLaterIsToldToo) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  hub_->SetDesired("job", {Wish("job/rollout/1", rollout_)});
  const int64_t epoch = rollout_.epoch();
  ASSERT_TRUE(rollout_.Register(*hub_).ok());  // the same process opens a new stream
  EXPECT_EQ(rollout_.epoch(), epoch);
  EXPECT_EQ(rollout_.Work(), "job/rollout/1");
  EXPECT_EQ(rollout_.unassigned(), 0);
}

TEST_F(WorkerHubTest, ALostWorkerIsStoredAsLostAndItsStreamEnds) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  EXPECT_EQ(Pass(absl::Seconds(8)).size(), 1U);
  EXPECT_EQ(rollout_.stream().end().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rollout_.Beat().code(), absl::StatusCode::kFailedPrecondition);
  // The loss is stored: the next leader gives the same process a new epoch.
  const int64_t epoch = rollout_.epoch();
  const auto next = MakeHub(2);
  ASSERT_TRUE(rollout_.Register(*next).ok());
  EXPECT_GT(rollout_.epoch(), epoch);
}

TEST_F(WorkerHubTest, ANewLeaderConfirmsThoseWhoComeBack) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  hub_->SetDesired("job", {Wish("job/rollout/1", rollout_)});
  ASSERT_EQ(rollout_.Work(), "job/rollout/1");
  const int64_t epoch = rollout_.epoch();
  const auto next = MakeHub(2);
  DesiredAssignment reserved = Wish("job/rollout/1", rollout_);
  reserved.assign = nullptr;
  next->SetDesired("job", {reserved});
  ASSERT_TRUE(rollout_.Register(*next).ok());
  EXPECT_EQ(rollout_.epoch(), epoch);
  EXPECT_EQ(rollout_.Work(), "job/rollout/1");
  EXPECT_EQ(rollout_.unassigned(), 0);
}

TEST_F(WorkerHubTest, AFormerLeaderCanDeclareNobodyLost) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  const auto next = MakeHub(2);
  ASSERT_TRUE(records_.Fence(2).ok());
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(absl::Milliseconds(500));
    const auto lost = hub_->Check();
    if (!lost.ok()) {
      EXPECT_EQ(lost.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_FALSE(hub_->Workers().at(0).record.lost()) << "not stored, so not so";
      return;
    }
    EXPECT_TRUE(lost->empty());
  }
  FAIL() << "the worker was never missed";
}

TEST_F(WorkerHubTest, AFormerLeaderGivesOutNoEpochs) {
  const auto next = MakeHub(2);
  ASSERT_TRUE(records_.Fence(2).ok());
  EXPECT_EQ(rollout_.Register(*hub_).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerHubTest, AnotherProcessOfTheNameEndsTheFormerStream) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  HubWorker other(cluster::v1::ROLE_ROLLOUT, "r0", "two");
  ASSERT_TRUE(other.Register(*hub_).ok());
  EXPECT_TRUE(rollout_.stream().finished());
  EXPECT_FALSE(other.stream().finished());
}

TEST_F(WorkerHubTest, AStreamThatTakesNoMoreIsEnded) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  rollout_.stream().Fill();
  hub_->SetDesired("job", {Wish("job/rollout/1", rollout_)});
  EXPECT_EQ(rollout_.stream().end().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerHubTest, AWorkerThatLeavesIsGone) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  ASSERT_TRUE(hub_->Deregister("r0", rollout_.epoch()).ok());
  ASSERT_TRUE(hub_->Deregister("r0", rollout_.epoch()).ok());
  EXPECT_TRUE(hub_->Workers().empty());
  EXPECT_TRUE(rollout_.stream().finished());
  EXPECT_FALSE(hub_->CheckEpoch("r0", rollout_.epoch()).ok());
}

TEST_F(WorkerHubTest, OneDirectiveNeedsAConnectedWorkerOfThatEpoch) {
  cluster::v1::Directive directive;
  directive.mutable_save_checkpoint();
  EXPECT_EQ(hub_->Send("r0", 1, directive).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  EXPECT_TRUE(hub_->Send("r0", rollout_.epoch(), directive).ok());
  EXPECT_EQ(hub_->Send("r0", rollout_.epoch() + 1, directive).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(rollout_.stream().All().size(), 1U);
}

TEST_F(WorkerHubTest, WantedNumbersOutliveALeader) {
  EXPECT_EQ(*hub_->SetWanted("rollout", "", 2, Surplus::kDrains), 0);
  EXPECT_EQ(*hub_->SetWanted("rollout", "default", 4, Surplus::kDrains), 2);
  EXPECT_EQ(*hub_->SetWanted("rollout", "big", 1, Surplus::kDrains), 0);
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  const auto next = MakeHub(2);
  EXPECT_THAT(next->Wanted(),
              testing::ElementsAre(testing::Pair("rollout", 4), testing::Pair("rollout/big", 1)));
}

TEST_F(WorkerHubTest, ARecordOfTheClusterThatCannotBeReadIsNotLedWith) {
  const auto stored = records_.Get("cluster");
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_TRUE(records_.Update("cluster", stored->revision, "\xff\xff\xff", 1).ok());
  EXPECT_EQ(WorkerHub::Create(records_, 1, clock_, WorkerHubOptions()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(WorkerHubTest, ThoseTooManyAreToldToDrain) {
  std::vector<HubWorker> workers;
  for (const char* name : {"rollout-1", "rollout-10", "rollout-2"}) {
    workers.emplace_back(cluster::v1::ROLE_ROLLOUT, name);
  }
  workers.emplace_back(cluster::v1::ROLE_ROLLOUT, "rollout-big-1", "one", "big");
  workers.emplace_back(cluster::v1::ROLE_REWARD, "reward-1");
  for (HubWorker& worker : workers) ASSERT_TRUE(worker.Register(*hub_).ok());
  const auto drained = [&](size_t i) {
    int count = 0;
    for (const auto& directive : workers[i].stream().All()) count += directive.has_drain() ? 1 : 0;
    return count;
  };
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 3, Surplus::kDrains).ok());
  EXPECT_EQ(drained(0) + drained(1) + drained(2), 0);
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 2, Surplus::kDrains).ok());
  EXPECT_EQ(drained(1), 1) << "the last by number";
  EXPECT_EQ(drained(0) + drained(2), 0);
  ASSERT_TRUE(hub_->Deregister("rollout-10", workers[1].epoch()).ok());
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 0, Surplus::kDrains).ok());
  EXPECT_EQ(drained(0), 1);
  EXPECT_EQ(drained(2), 1);
  EXPECT_EQ(drained(3) + drained(4), 0) << "other pools and roles";
}

TEST_F(WorkerHubTest, WorkersThatOthersRunAreNotDrained) {
  std::vector<HubWorker> workers;
  for (const char* name : {"rollout-1", "rollout-2", "mine-1", "mine-2"}) {
    workers.emplace_back(cluster::v1::ROLE_ROLLOUT, name);
  }
  for (HubWorker& worker : workers) ASSERT_TRUE(worker.Register(*hub_).ok());
  const auto drained = [&] {
    int count = 0;
    for (HubWorker& worker : workers) {
      for (const auto& directive : worker.stream().All()) count += directive.has_drain() ? 1 : 0;
    }
    return count;
  };
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 2, Surplus::kStays).ok());
  EXPECT_EQ(drained(), 0) << "a cluster that says what it runs";
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 3, Surplus::kDrains).ok());
  EXPECT_EQ(drained(), 0) << "more are wanted than before";
  ASSERT_TRUE(hub_->SetWanted("rollout", "", 2, Surplus::kDrains).ok());
  EXPECT_EQ(drained(), 1) << "one fewer is wanted than before";
}

TEST_F(WorkerHubTest, ADeposedLeadersRefusalIsMarked) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  EXPECT_FALSE(IsDeposed(hub_->SetWanted("trainer", "", 1, Surplus::kDrains).status()));
  ASSERT_TRUE(records_.Fence(2).ok());
  EXPECT_TRUE(IsDeposed(hub_->SetWanted("rollout", "", 1, Surplus::kDrains).status()));
  EXPECT_TRUE(hub_->Wanted().empty());
  hub_->Close(absl::UnavailableError("over"));
  EXPECT_TRUE(IsDeposed(hub_->SetWanted("rollout", "", 1, Surplus::kDrains).status()));
  EXPECT_TRUE(IsDeposed(hub_->Deregister("r0", rollout_.epoch())));
}

TEST_F(WorkerHubTest, ImpossibleNumbersAreRefused) {
  EXPECT_THAT(Message(hub_->SetWanted("trainer", "", 1, Surplus::kDrains).status()),
              HasSubstr("role: \"trainer\""));
  EXPECT_THAT(Message(hub_->SetWanted("reward", "x", 1, Surplus::kDrains).status()),
              HasSubstr("pool: "));
  EXPECT_THAT(Message(hub_->SetWanted("env", "", -1, Surplus::kDrains).status()),
              HasSubstr("replicas: -1"));
  EXPECT_THAT(Message(hub_->SetWanted("env", "", 1001, Surplus::kDrains).status()),
              HasSubstr("replicas: 1001"));
}

TEST_F(WorkerHubTest, CloseEndsEverything) {
  ASSERT_TRUE(rollout_.Register(*hub_).ok());
  hub_->Close(absl::UnavailableError("over"));
  EXPECT_EQ(rollout_.stream().end().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(rollout_.Register(*hub_).ok());
  EXPECT_EQ(hub_->AwaitChange(hub_->ChangeCount(), absl::Hours(1)), hub_->ChangeCount());
}

}  // namespace
}  // namespace freshet
