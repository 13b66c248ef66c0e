#include "controller/jobs/plan/work_failures.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using absl::StatusCode;
using cluster::v1::ROLE_REWARD;
using cluster::v1::ROLE_ROLLOUT;
using cluster::v1::ROLE_TRAINER;
using testing::HasSubstr;

class WorkFailuresTest : public testing::Test {
 protected:
  // Reports a worker's failure, then advances the clock by the pause before the restart.
  FailureDecision Fail(cluster::v1::Role role, const std::string& worker,
                       StatusCode code = StatusCode::kInternal,
                       const std::string& error = "out of memory") {
    const FailureDecision decision = failures_.Add({role, worker, code, error}, now_);
    now_ += decision.pause;
    return decision;
  }

  ControllerTiming timing_;
  WorkFailures failures_{timing_};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(WorkFailuresTest, OnlyATrainersErrorEndsTheJobAtOnce) {
  for (const StatusCode code : {StatusCode::kInternal, StatusCode::kInvalidArgument,
                                StatusCode::kResourceExhausted, StatusCode::kUnavailable}) {
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r0", code).ends_job);
    EXPECT_FALSE(Fail(ROLE_REWARD, "w0", code).ends_job);
  }
  const FailureDecision trainer = Fail(ROLE_TRAINER, "t0", StatusCode::kDataLoss, "bad checkpoint");
  EXPECT_TRUE(trainer.ends_job);
  EXPECT_EQ(trainer.reason, "trainer t0: bad checkpoint");
}

TEST_F(WorkFailuresTest, ATrainersErrorsThatMayPassEndTheJobInTheEnd) {
  for (int i = 1; i < timing_.trainer_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_TRAINER, "t0", StatusCode::kAborted).ends_job);
  }
  failures_.OnStep();
  for (int i = 1; i < timing_.trainer_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_TRAINER, "t0", StatusCode::kAborted).ends_job);
    now_ += absl::Hours(1);  // without a step
  }
  const FailureDecision last = Fail(ROLE_TRAINER, "t0", StatusCode::kAborted, "lineage differs");
  EXPECT_TRUE(last.ends_job);
  EXPECT_EQ(last.reason, "trainer t0: lineage differs (8 times in a row without a step)");
}

TEST_F(WorkFailuresTest, PausesDoubleUntilTheWorkerHasWorkedForAWhile) {
  const int seconds[] = {1, 2, 4, 8, 16, 30, 30};
  for (const int s : seconds) EXPECT_EQ(Fail(ROLE_ROLLOUT, "r0").pause, absl::Seconds(s));
  EXPECT_EQ(Fail(ROLE_ROLLOUT, "r1").pause, absl::Seconds(1)) << "another worker";
  failures_.OnStep();
  EXPECT_EQ(Fail(ROLE_ROLLOUT, "r0").pause, absl::Seconds(30)) << "steps of other engines";
  now_ += 2 * timing_.retry_most;
  EXPECT_EQ(Fail(ROLE_ROLLOUT, "r0").pause, absl::Seconds(1));
}

TEST_F(WorkFailuresTest, ARoleWhoseWorkersAllFailEndsTheJobWithTheCommonestReason) {
  failures_.OnWorker(ROLE_ROLLOUT, "r1", now_);
  for (int i = 1; i < timing_.worker_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r0", StatusCode::kInternal, "no GPU").ends_job);
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r1", StatusCode::kInternal, "out of memory").ends_job);
  }
  EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r0", StatusCode::kInternal, "out of memory").ends_job);
  const FailureDecision last = Fail(ROLE_ROLLOUT, "r1", StatusCode::kInternal, "out of memory");
  EXPECT_TRUE(last.ends_job);
  EXPECT_EQ(last.reason,
            "each rollout worker failed 8 times within 10m without a committed step; most often (9 "
            "times): out of memory; the last one: r1");
}

TEST_F(WorkFailuresTest, NoWorkerEndsTheJobWhileAnotherOfItsRoleWorks) {
  for (int i = 0; i < 100; ++i) {
    failures_.OnWorker(ROLE_ROLLOUT, "r1", now_);
    const FailureDecision decision = Fail(ROLE_ROLLOUT, "r0");
    EXPECT_FALSE(decision.ends_job);
    EXPECT_THAT(decision.reason, HasSubstr("rollout r0: out of memory"));
  }
}

TEST_F(WorkFailuresTest, AWorkerThatIsAwayMayComeBack) {
  failures_.OnWorker(ROLE_ROLLOUT, "r1", now_);
  for (int i = 0; i < timing_.worker_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r0").ends_job);
  }
  now_ += timing_.failure_window;
  for (int i = 1; i < timing_.worker_failures; ++i) Fail(ROLE_ROLLOUT, "r0");
  EXPECT_TRUE(Fail(ROLE_ROLLOUT, "r0").ends_job) << "the other one has not come back";
}

TEST_F(WorkFailuresTest, AWorkerThatLeftDoesNotCountForItsSuccessor) {
  failures_.OnWorker(ROLE_ROLLOUT, "r1", now_);
  for (int i = 0; i < timing_.worker_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r0").ends_job);
  }
  failures_.OnWorker(ROLE_ROLLOUT, "r0-new", now_);
  for (int i = 0; i < timing_.worker_failures; ++i) {
    EXPECT_FALSE(Fail(ROLE_ROLLOUT, "r1").ends_job);
  }
}

TEST_F(WorkFailuresTest, AStepForgivesAndSoDoesTime) {
  for (int i = 0; i < 10; ++i) {
    for (int j = 1; j < timing_.worker_failures; ++j) {
      EXPECT_FALSE(Fail(ROLE_REWARD, "w0").ends_job);
    }
    failures_.OnStep();
  }
  for (int i = 0; i < 100; ++i) {
    now_ += timing_.failure_window / (timing_.worker_failures - 1);
    EXPECT_FALSE(Fail(ROLE_REWARD, "w0").ends_job);
  }
}

// Errors that workers report while the datastore or the controller is unavailable.
TEST_F(WorkFailuresTest, OutagesNeverEndTheJobByAWorkerBesideTheTrainer) {
  for (int i = 0; i < 100; ++i) {
    for (const StatusCode code :
         {StatusCode::kUnavailable, StatusCode::kAborted, StatusCode::kFailedPrecondition}) {
      const FailureDecision decision = Fail(ROLE_ROLLOUT, "r0", code, "no connection");
      EXPECT_FALSE(decision.ends_job);
      EXPECT_LE(decision.pause, timing_.retry_most);
    }
  }
}

}  // namespace
}  // namespace freshet
