// What the controller says about a running job: stalls, evaluations, progress and notices.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/controller_fixture.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

using ControllerReportsTest = ControllerTest;

TEST_F(ControllerReportsTest, AStallIsNamedWithinTenSeconds) {
  Run("a");
  // Without rollouts nothing is generated.
  ASSERT_TRUE(term_->hub->Deregister("r0", rollout_.epoch()).ok());
  const absl::Time before = cluster_.clock.Now();
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    // Wait for the driver to start a turn at the current time. One of any two reads is the first
    // read of a turn.
    const int reads = cluster_.records.reads;
    EXPECT_TRUE(Eventually([&] { return cluster_.records.reads >= reads + 2; }));
    return !Notices("a", "stalled").empty();
  }));
  EXPECT_LE(cluster_.clock.Now() - before, absl::Seconds(12));
  EXPECT_THAT(Notices("a", "stalled")[0], HasSubstr("rollout: pool default: 0 rollouts ready"));
  EXPECT_THAT(term_->manager.Driver("a")->Live().waits_for, HasSubstr("rollout"));
}

TEST_F(ControllerReportsTest, EvaluationsAreDirectedScoredAndRecorded) {
  Run("a", "eval: {rows: 3, every_steps: 2}\n");
  rollout_.set_version(0);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return rollout_.evaluations().size() == 1;
  }));
  const cluster::v1::Evaluate evaluate = rollout_.evaluations()[0];
  EXPECT_EQ(evaluate.policy().version(), 0);
  EXPECT_EQ(evaluate.rows(), 3);
  const auto driver = term_->manager.Driver("a");
  cluster::v1::FetchRowsRequest fetch;
  fetch.set_held_out(true);
  fetch.set_count(10);
  const auto rows = driver->FetchRows(fetch);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->total(), 3);
  const EvaluationState state = AnswerRows(evaluate, rows->rows());
  EXPECT_EQ(state.answered, 3);
  EXPECT_EQ(state.ended, 0);
  EXPECT_EQ(Record("a").evaluated_version(), -1) << "nothing is scored yet";
  ScoreRows("");
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluated_version() == 0; }));
  EXPECT_EQ(Record("a").eval_accuracy(), 1.0);

  // The job waits for the last evaluation.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Eventually([&] { return Record("a").trainer_done(); }));
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  rollout_.set_version(4);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return rollout_.evaluations().size() == 2;
  }));
  AnswerRows(rollout_.evaluations()[1], rows->rows());
  ScoreRows(rows->rows(0).attributes().at("answer"));
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_NEAR(Record("a").eval_accuracy(), 2.0 / 3, 1e-9);
  EXPECT_THAT(EvaluationMetrics("a"),
              ElementsAre(Pair(0, 1.0), Pair(4, DoubleNear(2.0 / 3, 1e-9))));
}

TEST_F(ControllerReportsTest, AnEvaluationSetThatIsDoneIsNotRepeatedByANewLeader) {
  Run("a", "eval: {rows: 3, every_steps: 2, sets: [{name: one}, {name: two, rows: 2}]}\n");
  rollout_.set_version(0);
  const auto directed = [&](size_t count) {
    return Eventually([&] {
      Beat();
      return rollout_.evaluations().size() == count;
    });
  };
  const auto answer = [&](const cluster::v1::Evaluate& evaluate) {
    cluster::v1::FetchRowsRequest fetch;
    fetch.set_held_out(true);
    fetch.set_count(10);
    fetch.set_eval_set(evaluate.eval_set());
    const auto rows = term_->manager.Driver("a")->FetchRows(fetch);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->total(), evaluate.rows());
    AnswerRows(evaluate, rows->rows());
    ScoreRows("");
  };
  ASSERT_TRUE(directed(1));
  EXPECT_EQ(rollout_.evaluations()[0].eval_set(), "one");
  answer(rollout_.evaluations()[0]);
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluations_size() == 1; }));
  ASSERT_TRUE(directed(2));
  EXPECT_EQ(rollout_.evaluations()[1].eval_set(), "two");
  EXPECT_EQ(Record("a").evaluated_version(), -1) << "of set two nothing is scored yet";

  TakeOver("two");
  JoinAll();
  ASSERT_TRUE(directed(3));
  EXPECT_EQ(rollout_.evaluations()[2].eval_set(), "two");
  answer(rollout_.evaluations()[2]);
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluated_version() == 0; }));
  EXPECT_THAT(EvaluationMetrics("a"), SizeIs(2)) << "one row for each set";
}

TEST_F(ControllerReportsTest, TheTrainerLearnsWhenTheJobStarted) {
  Run("a");
  EXPECT_EQ(trainer_.assign(trainer_.Work()).started().seconds(), Record("a").started().seconds());
}

TEST_F(ControllerReportsTest, ProgressIsReadFromTheTrainersRows) {
  Run("a");
  job::v1::Event event;
  event.set_metrics_json(
      "{\"step\": 3, \"lineage\": 1, \"policy_version\": 3, \"reward_mean\": 0.5}");
  ASSERT_TRUE(
      cluster_.events->Append(EventStream("a"), "step/1/3", event.SerializeAsString()).ok());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").step() == 3 && Record("a").reward_mean() == 0.5;
  }));
  // Steps of an older lineage are ignored.
  event.set_metrics_json("{\"step\": 9, \"lineage\": 0, \"reward_mean\": 0.9}");
  ASSERT_TRUE(
      cluster_.events->Append(EventStream("a"), "step/0/9", event.SerializeAsString()).ok());
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").metrics_cursor() > 0 &&
           Record("a").metrics_cursor() ==
               cluster_.events->Read(EventStream("a"), 0, 1000, absl::ZeroDuration())
                   ->events.back()
                   .cursor;
  }));
  EXPECT_EQ(Record("a").step(), 3);
}

TEST_F(ControllerReportsTest, ATrainersNoticeIsKeptInTheRecord) {
  Run("a");
  job::v1::Event event;
  event.mutable_notice()->set_text("rank 1 was ended");
  const absl::StatusOr<int64_t> cursor =
      cluster_.events->Append(EventStream("a"), "rank_lost/3/1", event.SerializeAsString());
  ASSERT_TRUE(cursor.ok());
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").metrics_cursor() >= *cursor;
  }));
  const auto kept = Record("a").recent_events();
  EXPECT_EQ(std::ranges::count(kept, "rank_lost/3/1", &cluster::v1::KeyedEvent::key), 1);
}

}  // namespace
}  // namespace freshet
