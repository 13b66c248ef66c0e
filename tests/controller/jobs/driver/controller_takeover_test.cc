// Workers and leaders that are lost, and those that take their place.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/controller_fixture.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;

using ControllerTakeoverTest = ControllerTest;

TEST_F(ControllerTakeoverTest, ALostRolloutsLeasesReturnAndItRejoins) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  const int64_t before = store->Stats()->leases_expired;
  // Only the rollout stops sending heartbeats.
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return rollout_.stream().finished();
  }));
  EXPECT_TRUE(Eventually([&] { return store->Stats()->leases_expired == before + 1; }));
  EXPECT_EQ(Lease("a").status().code(), absl::StatusCode::kFailedPrecondition) << "fenced";
  EXPECT_TRUE(Eventually([&] { return Notices("a", "worker_lost").size() == 1; }));
  EXPECT_THAT(Notices("a", "worker_lost")[0], HasSubstr("rollout r0 is lost: silent for"));

  const int64_t epoch = rollout_.epoch();
  // It may receive its new work as soon as it has joined.
  const std::string former = rollout_.Work();
  Join({&rollout_});
  EXPECT_GT(rollout_.epoch(), epoch);
  EXPECT_TRUE(Eventually([&] { return rollout_.Work() != former && rollout_.Work() != ""; }));
  EXPECT_TRUE(Lease("a").ok());
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
}

TEST_F(ControllerTakeoverTest, ALostTrainersJobWaitsAndGoesOn) {
  Run("a");
  const std::string work = trainer_.Work();
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return trainer_.stream().finished();
  }));
  const auto driver = term_->manager.Driver("a");
  ASSERT_NE(driver, nullptr);
  EXPECT_TRUE(Eventually(
      [&] { return driver->Live().waits_for.find("trainer t0 is lost") != std::string::npos; }));
  // The trainer was only slow: the same process resumes the same work.
  Join({&trainer_});
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return driver->Live().waits_for.find("lost") == std::string::npos;
  }));
  EXPECT_EQ(trainer_.Work(), work);
  EXPECT_EQ(trainer_.unassigned(), 0);
  // A new process gets new work.
  HubWorker again(cluster::v1::ROLE_TRAINER, "t0", "two");
  Join({&again});
  EXPECT_TRUE(Eventually([&] { return again.Work() != "" && again.Work() != work; }));
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
}

TEST_F(ControllerTakeoverTest, ATrainerThatWasReplacedIsFreeForOthers) {
  Run("a");
  HubWorker other(cluster::v1::ROLE_TRAINER, "t1");
  Join({&other});
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(200));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return other.Work().starts_with("a/");
  }));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t1")), "a");
  EXPECT_TRUE(Eventually(
      [&] { return term_->reservations.HolderOf(Reservations::Trainer("t0")).empty(); }));
}

TEST_F(ControllerTakeoverTest, AJobWaitsForItsTrainerWhereNoOtherHasItsCheckpoints) {
  cluster_.other_trainer_after = absl::InfiniteDuration();
  TakeOver("two");
  Run("a");
  HubWorker other(cluster::v1::ROLE_TRAINER, "t1");
  Join({&other});
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return trainer_.stream().finished();
  }));
  const auto driver = term_->manager.Driver("a");
  ASSERT_TRUE(Eventually(
      [&] { return driver->Live().waits_for.find("trainer t0 is lost") != std::string::npos; }));
  cluster_.clock.Advance(absl::Minutes(3));
  const int reads = cluster_.records.reads;
  ASSERT_TRUE(Eventually([&] {
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return cluster_.records.reads > reads + 10;
  }));
  EXPECT_EQ(other.Work(), "");
  EXPECT_EQ(Record("a").trainer(), "t0");
  HubWorker again(cluster::v1::ROLE_TRAINER, "t0", "two");
  Join({&again});
  EXPECT_TRUE(Eventually([&] { return again.Work().starts_with("a/"); }));
}

TEST_F(ControllerTakeoverTest, ARestartOfTheControllerInterruptsNobody) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  const std::string trainer = trainer_.Work();
  const std::string rollout = rollout_.Work();
  const int64_t epoch = rollout_.epoch();
  const size_t described = cluster_.trainers.described();
  TakeOver("two");
  EXPECT_TRUE(rollout_.stream().finished());
  JoinAll();
  EXPECT_EQ(rollout_.epoch(), epoch);
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return cluster_.trainers.described() > described &&
           term_->manager.Driver("a")->Live().waits_for != "";
  }));
  EXPECT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; })) << "fed again";
  EXPECT_EQ(trainer_.Work(), trainer);
  EXPECT_EQ(rollout_.Work(), rollout);
  EXPECT_EQ(trainer_.unassigned() + rollout_.unassigned() + reward_.unassigned(), 0);
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  EXPECT_EQ(store->Stats()->leases_expired, 0);
  // The job can end under the new leader.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  EXPECT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
}

// Member lists of a later term have a higher revision, even from the same controller.
TEST_F(ControllerTakeoverTest, ALeaderThatLeadsAgainIsHeard) {
  Run("a");
  const auto members = [this] {
    const std::string work = trainer_.Work();
    return work.empty() ? cluster::v1::Members() : trainer_.assign(work).members();
  };
  ASSERT_TRUE(Eventually([&] { return members().rollouts_size() == 1; }));
  const int64_t revision = members().revision();
  const int64_t fence = term_->fence;
  cluster_.clock.Advance(absl::Hours(1));  // the leader's lease expires
  ASSERT_TRUE(Eventually([&] {
    term_ = controller_->Active();
    return term_ != nullptr && term_->fence > fence;
  }));
  JoinAll();
  HubWorker other(cluster::v1::ROLE_ROLLOUT, "r1");
  Join({&other});
  EXPECT_TRUE(Eventually([&] { return members().rollouts_size() == 2; }));
  EXPECT_GT(members().revision(), revision);
}

TEST_F(ControllerTakeoverTest, AWorkerThatDiesDuringATakeoverIsMissed) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  TakeOver("two");
  Join({&trainer_, &reward_});  // the rollout does not rejoin
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return store->Stats()->leases_expired == 1;
  }));
}

TEST_F(ControllerTakeoverTest, AStandbyTakesOverAndTheFormerLeaderCanDoNothing) {
  Run("a");
  const std::shared_ptr<ControllerTerm> former = term_;
  auto standby = cluster_.MakeController("two");
  standby->Start("two:7070");
  EXPECT_TRUE(Eventually([&] { return standby->Leader().address == "one:7070"; }));
  EXPECT_EQ(standby->Active(), nullptr);
  controller_->Stop();
  ASSERT_TRUE(Eventually([&] { return standby->Active() != nullptr; }));
  EXPECT_EQ(controller_->Active(), nullptr);
  const auto written = former->registry.Change("a", [](JobRecord& record) {
    record.set_step(99);
    return absl::OkStatus();
  });
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  // Checked before revoking workers, because the job records do not fence that.
  EXPECT_EQ(former->registry.CheckLead().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(standby->Active()->registry.CheckLead().ok());
  EXPECT_FALSE(rollout_.Register(*former->hub).ok());
  term_ = nullptr;
  standby->Stop();
}

TEST_F(ControllerTakeoverTest, AFormerLeaderThatDoesNotKnowItRevokesNobody) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  // A successor leads and has registered the rollout under an epoch unknown to this leader.
  JobRegistry successor(cluster_.records, *cluster_.events, term_->fence + 1, cluster_.clock);
  ASSERT_TRUE(successor.CheckLead().ok());
  const auto written = successor.Change("a", [](JobRecord& record) {
    for (Assignment& assignment : *record.mutable_assignments()) {
      if (assignment.role() == cluster::v1::ROLE_ROLLOUT) assignment.set_epoch(99);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written.status();
  const int reads = cluster_.records.reads;
  ASSERT_TRUE(Eventually([&] { return cluster_.records.reads > reads + 10; }));
  EXPECT_TRUE(store->LeasePrompts({LeaseName("r0", 99), "", {0, 0}, 1}).ok());
}

TEST_F(ControllerTakeoverTest, OfTwoJobsWithOneTrainerTheOneThatStartedFirstKeepsIt) {
  Run("b");
  const int64_t fence = term_->fence;
  controller_->Stop();
  term_ = nullptr;
  // Another job's record names the same trainer and pool. Its id sorts first.
  cluster_.clock.Advance(absl::Seconds(1));
  JobRegistry registry(cluster_.records, *cluster_.events, fence, cluster_.clock);
  JobRecord later = NewJobRecord("a", Spec(), 0, cluster_.clock.Now());
  ASSERT_TRUE(MoveTo(later, JOB_STATE_STARTING, "starts", cluster_.clock.Now()).ok());
  later.set_trainer("t0");
  later.set_pool("default");
  *later.add_assignments() = NewAssignment(later, cluster::v1::ROLE_TRAINER, "t0", trainer_.epoch(),
                                           "one", cluster_.clock.Now());
  ASSERT_TRUE(registry.Create(later).ok());
  Lead("two");
  ASSERT_TRUE(Becomes("a", JOB_STATE_PENDING));
  EXPECT_EQ(Record("a").assignments_size(), 0);
  JoinAll();
  Beat();
  EXPECT_TRUE(Eventually([&] {
    return Record("a").reason() == "waits for trainer t0, which has its files: it works for b";
  }));
  EXPECT_EQ(term_->manager.Driver("a"), nullptr);
  EXPECT_TRUE(trainer_.Work().starts_with("b/"));
  EXPECT_EQ(Record("b").state(), JOB_STATE_RUNNING);
  EXPECT_EQ(Reasons("a", JOB_STATE_PENDING).back(),
            "trainer t0 is that of job b, which started first; waits for its turn");
  // It then starts like any waiting job.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("b", JOB_STATE_SUCCEEDED));
  EXPECT_TRUE(Becomes("a", JOB_STATE_STARTING));
}

}  // namespace
}  // namespace freshet
