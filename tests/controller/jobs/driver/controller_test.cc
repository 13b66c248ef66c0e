#include "controller/jobs/driver/controller.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/controller_fixture.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;
using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;

TEST_F(ControllerTest, AJobWaitsForItsWorkersAndSaysSo) {
  Submit("a");
  EXPECT_TRUE(
      Eventually([&] { return Record("a").reason() == "waits for a trainer: 0 of 1 ready"; }));
  Join({&trainer_});
  EXPECT_TRUE(Eventually(
      [&] { return Record("a").reason() == "waits for rollouts: 0 ready in pool default"; }));
  Join({&rollout_, &reward_});
  EXPECT_TRUE(Becomes("a", JOB_STATE_STARTING));
}

TEST_F(ControllerTest, EverybodyIsToldWhatTheyNeed) {
  rollout_.set_site("eu");
  Run("a");
  const cluster::v1::Assign& assign = rollout_.assign(rollout_.Work());
  EXPECT_EQ(assign.job_id(), "a");
  EXPECT_EQ(assign.spec().trainer().steps(), 4);
  EXPECT_THAT(assign.model().config_json(), HasSubstr("hidden_size"));
  EXPECT_EQ(assign.longest_prompt_tokens(), 6) << "NN+NN=";
  EXPECT_FALSE(assign.resume());
  EXPECT_TRUE(Eventually([&] {
    const cluster::v1::Members members = trainer_.assign(trainer_.Work()).members();
    return members.rollouts_size() == 1 && members.rollouts(0).address() == "r0:1" &&
           members.rollouts(0).site() == "eu" && members.trainer().worker() == "t0";
  }));
}

TEST_F(ControllerTest, PromptsAreFedAndNotLost) {
  Run("a");
  const auto store = Store("a");
  EXPECT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; }));
}

TEST_F(ControllerTest, ABadModelFailsTheJobWithItsReason) {
  cluster_.trainers.Fail(InvalidArgument("model.path: no such directory"));
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), "model.path: no such directory");
  EXPECT_TRUE(Record("a").has_expires());
}

TEST_F(ControllerTest, ATrainerThatIsNotReachedIsAskedAgain) {
  cluster_.trainers.Fail(absl::UnavailableError("refused"));
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Becomes("a", JOB_STATE_STARTING));
  cluster_.trainers.Fail(absl::OkStatus());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(1));
    return rollout_.Work() != "";
  }));
}

TEST_F(ControllerTest, ADoneTrainerEndsTheJob) {
  Run("a");
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_EQ(Record("a").reason(), "all 4 steps are done and saved");
  EXPECT_TRUE(Record("a").counts_at_end().groups().contains("queued"));
  EXPECT_TRUE(Record("a").counts_at_end().curated().contains("skipped"));
  ASSERT_TRUE(Eventually([&] { return cluster_.stores.freed().contains("a"); }));
  EXPECT_FALSE(cluster_.stores.freed().at("a"));  // not resumable
  EXPECT_TRUE(Eventually([&] { return trainer_.Work() == "" && rollout_.Work() == ""; }));
}

TEST_F(ControllerTest, AnErrorOfTheTrainerThatWillNotPassEndsTheJob) {
  Run("a");
  Report(trainer_, AssignmentStatus::STATE_FAILED, "bad checkpoint", absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), "trainer t0: bad checkpoint");
}

TEST_F(ControllerTest, AnErrorOfAnotherWorkerBeginsItsWorkAnew) {
  Run("a");
  int failures = 0;
  for (HubWorker* worker : {&rollout_, &reward_, &rollout_}) {
    const std::string id = worker->Work();
    Report(*worker, AssignmentStatus::STATE_FAILED, "std::bad_alloc", absl::StatusCode::kInternal);
    ASSERT_TRUE(Eventually([&] {
      cluster_.clock.Advance(absl::Milliseconds(1));
      Beat();
      return worker->Work() != "" && worker->Work() != id;
    }));
    EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
    ++failures;
    ASSERT_TRUE(Eventually(
        [&] { return Notices("a", "worker_failed").size() == static_cast<size_t>(failures); }));
    EXPECT_THAT(Notices("a", "worker_failed").back(),
                HasSubstr(StrCat(worker->name(), ": std::bad_alloc")));
  }
}

TEST_F(ControllerTest, AWorkerWhoseWorkFailsIsNamedUntilItBeginsAnew) {
  Run("a");
  Report(rollout_, AssignmentStatus::STATE_FAILED, "std::bad_alloc", absl::StatusCode::kInternal);
  const auto driver = term_->manager.Driver("a");
  ASSERT_NE(driver, nullptr);
  EXPECT_TRUE(Eventually([&] {
    return driver->Live().waits_for.find("rollout r0: std::bad_alloc") != std::string::npos;
  }));
}

TEST_F(ControllerTest, ARoleWhoseWorkersAllFailForGoodEndsTheJob) {
  Run("a");
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(50));
    if (reward_.Work() != "") {
      AssignmentStatus report;
      report.set_state(AssignmentStatus::STATE_FAILED);
      report.set_error("no such scorer");
      report.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
      reward_.Report(reward_.Work(), report);
    }
    Beat();
    return Record("a").state() == JOB_STATE_FAILED;
  }));
  EXPECT_THAT(Record("a").reason(), HasSubstr("each reward worker failed 8 times"));
  EXPECT_THAT(Record("a").reason(), HasSubstr("no such scorer"));
}

TEST_F(ControllerTest, AJobThatNeedsACallTooManyFailsAndGoesOnWithMore) {
  job::v1::JobSpec spec = Spec("");
  auto& [name, component] = *spec.mutable_reward()->mutable_components()->begin();
  component.set_max_calls(1);
  JoinAll();
  ASSERT_TRUE(term_->registry.Create(NewJobRecord("a", spec, 0, cluster_.clock.Now())).ok());
  term_->manager.LookAtQueue();
  const auto runs = [this] {
    Beat();
    return Record("a").state() == JOB_STATE_RUNNING;
  };
  ASSERT_TRUE(Eventually(runs));
  EXPECT_TRUE(*Store("a")->calls().Spend(name, 1));
  EXPECT_FALSE(*Store("a")->calls().Spend(name, 1));
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), StrCat("reward.components.", name,
                                         ".max_calls: all 1 calls are used; raise it and resume"));
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work() == "" && rollout_.Work() == "" && reward_.Work() == "";
  }));
  Want("a", [&name = name](JobRecord& record, absl::Time now) {
    google::protobuf::Map<std::string, int64_t> raised;
    raised[name] = 2;
    const absl::Status status = RaiseMaxCalls(record, raised);
    return status.ok() ? WantResumed(record, now) : status;
  });
  ASSERT_TRUE(Eventually(runs));
  EXPECT_EQ(reward_.assign(reward_.Work()).spec().reward().components().at(name).max_calls(), 2);
  EXPECT_TRUE(*Store("a")->calls().Spend(name, 2));
  EXPECT_FALSE(*Store("a")->calls().Spend(name, 2));
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_THAT(Record("a").reason(), HasSubstr("all 2 calls are used"));
}

TEST_F(ControllerTest, ATrainerThatFailsAgainAndAgainEndsTheJob) {
  Run("a");
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(50));
    if (trainer_.Work() != "") {
      AssignmentStatus report;
      report.set_state(AssignmentStatus::STATE_FAILED);
      report.set_error("lineage differs");
      report.set_error_code(static_cast<int>(absl::StatusCode::kAborted));
      trainer_.Report(trainer_.Work(), report);
    }
    Beat();
    return Record("a").state() == JOB_STATE_FAILED;
  }));
  EXPECT_THAT(Record("a").reason(), HasSubstr("lineage differs (8 times in a row"));
}

TEST_F(ControllerTest, AJobRunsWhoseStartWasWrittenWithoutAnAnswer) {
  cluster_.records.lost_starts = 1;
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Eventually([&] { return cluster_.records.refused_lists > 0; }));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t0")), "a")
      << "no other job may take it";
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Pool("default")), "a");
  cluster_.records.unlisted = false;
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() != "" && rollout_.Work() != ""; }));
  Beat();
  ASSERT_TRUE(Becomes("a", JOB_STATE_RUNNING));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t0")), "a");
}

TEST_F(ControllerTest, AJobWhoseStartWasNotWrittenKeepsNothingFromItself) {
  cluster_.records.refused_starts = 1;
  Run("a");
  EXPECT_EQ(cluster_.records.refused_starts, 0);
}

TEST_F(ControllerTest, WhoeverScalesThePoolsSaysHowManyAreWanted) {
  class FiveEngines final : public PoolScaler {
   public:
    absl::StatusOr<int32_t> SetWanted(const std::string&, const std::string&, int32_t,
                                      Surplus) override {
      return 5;
    }
    std::map<std::string, int32_t> Wanted() override { return {{"rollout", 5}}; }
  } scaler;
  cluster_.scaler = &scaler;
  TakeOver("two");
  Join({&rollout_});
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    rollout_.Beat().IgnoreError();
    const auto pool = term_->pools.Find("default");
    return pool.has_value() && pool->ready == 1 && pool->wanted == 5;
  }));
  ASSERT_TRUE(term_->hub->Deregister("r0", rollout_.epoch()).ok());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    const auto pool = term_->pools.Find("default");
    return pool.has_value() && pool->ready == 0 && pool->wanted == 5;
  })) << "none is left, and they are wanted all the same";
  controller_->Stop();
  term_ = nullptr;
}

TEST_F(ControllerTest, TwoJobsTakeTurns) {
  Run("a");
  Submit("b");
  EXPECT_TRUE(Eventually(
      [&] { return Record("b").reason() == "waits for a trainer: 0 of 1 free, taken by a"; }));
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work().starts_with("b/") && rollout_.Work().starts_with("b/");
  }));
  EXPECT_NE(Store("a").get(), Store("b").get());
}

TEST_F(ControllerTest, TheMoreUrgentJobIsNext) {
  Run("a");
  Submit("later", "", 0);
  Submit("urgent", "", 7);
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("urgent", JOB_STATE_STARTING));
  EXPECT_EQ(Record("later").state(), JOB_STATE_PENDING);
}

TEST_F(ControllerTest, APauseReachesTheWorkersAndAResumeToo) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantPaused(r, "lunch", now); });
  ASSERT_TRUE(Becomes("a", JOB_STATE_PAUSED));
  EXPECT_EQ(Record("a").reason(), "paused on request: lunch");
  EXPECT_TRUE(Eventually(
      [&] { return rollout_.paused(rollout_.Work()) && trainer_.paused(trainer_.Work()); }));
  Want("a", WantResumed);
  ASSERT_TRUE(Becomes("a", JOB_STATE_RUNNING));
  EXPECT_TRUE(Eventually([&] { return !rollout_.paused(rollout_.Work()); }));
}

TEST_F(ControllerTest, ACancelLetsTheTrainerSaveFirst) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "enough", now); });
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() == ""; }));
  // The trainer has not yet confirmed that it stopped.
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  EXPECT_THAT(Record("a").reason(), HasSubstr("is being cancelled"));
  ASSERT_TRUE(trainer_.Beat().ok());
  ASSERT_TRUE(Becomes("a", JOB_STATE_CANCELLED));
  EXPECT_EQ(Record("a").reason(), "cancelled on request: enough");
  EXPECT_TRUE(Eventually([&] { return rollout_.Work() == ""; }));
}

TEST_F(ControllerTest, ACancelDoesNotWaitForEver) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "", now); });
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() == ""; }));
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Seconds(1));
    rollout_.Beat().IgnoreError();
    return Record("a").state() == JOB_STATE_CANCELLED;
  }));
}

TEST_F(ControllerTest, ACancelledJobCanBeResumedOnItsTrainer) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "", now); });
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return Record("a").state() == JOB_STATE_CANCELLED;
  }));
  Want("a", WantResumed);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work() != "" && trainer_.assign(trainer_.Work()).resume();
  }));
  EXPECT_EQ(Record("a").runs(), 2);
}

}  // namespace
}  // namespace freshet
