#include "local/local_status.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

class LocalStatusTest : public testing::Test {
 protected:
  static JobSpec Spec() {
    JobSpec spec;
    spec.set_name("add");
    spec.mutable_trainer()->set_steps(9);
    spec.mutable_eval()->add_sets()->set_name("heldout");
    spec.mutable_eval()->add_sets()->set_name("hard");
    return spec;
  }
  static std::string Step(int64_t step) {
    StepMetrics row;
    row.step = step;
    row.policy_version = step;
    row.reward_mean = 0.5;
    return ToJson(row);
  }
  LocalStatus status_{Spec(), SystemClock::Get()};
};

TEST_F(LocalStatusTest, TheJobFollowsItsRows) {
  EXPECT_EQ(status_.Get("add")->state(), job::v1::JOB_STATE_STARTING);
  status_.SetState(job::v1::JOB_STATE_RUNNING, "the trainer is at work");
  EvalMetrics evaluation;
  evaluation.eval_name = "heldout";
  evaluation.eval_accuracy = 0.25;
  status_.AddRow(ToJson(evaluation));
  evaluation.eval_name = "hard";
  evaluation.eval_accuracy = 0.125;
  status_.AddRow(ToJson(evaluation));
  status_.AddRow(Step(1));
  status_.AddRow(Step(2));
  const absl::StatusOr<job::v1::Job> job = status_.Get("add");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->state(), job::v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->step(), 2);
  EXPECT_EQ(job->steps(), 9);
  EXPECT_EQ(job->eval_accuracy(), 0.25) << "of the first set";
  ASSERT_EQ(job->evaluations_size(), 2);
  EXPECT_EQ(job->evaluations(1).name(), "hard");
  EXPECT_EQ(job->evaluations(1).accuracy(), 0.125);
  EXPECT_EQ(status_.List(10)->jobs.at(0).recent_events_size(), 0);
}

TEST_F(LocalStatusTest, RowsComeOnceInPages) {
  for (int64_t step = 1; step <= 5; ++step) status_.AddRow(Step(step));
  const absl::StatusOr<StatusRows> first = status_.Metrics("add", 0, 3);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->rows, ElementsAre(Step(1), Step(2), Step(3)));
  EXPECT_TRUE(first->more);
  const absl::StatusOr<StatusRows> second = status_.Metrics("add", first->cursor, 3);
  EXPECT_THAT(second->rows, ElementsAre(Step(4), Step(5)));
  EXPECT_FALSE(second->more);
  EXPECT_FALSE(second->gap);
  const absl::StatusOr<StatusRows> third = status_.Metrics("add", second->cursor, 3);
  EXPECT_TRUE(third->rows.empty());
  EXPECT_EQ(third->cursor, second->cursor);
  EXPECT_EQ(status_.Metrics("add", 6, 3).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(LocalStatusTest, AStallIsAnEventAndNoRow) {
  status_.AddNotice("stalled", {{"reason", "reward: 3 rows unscored"}});
  status_.AddRow("{");
  status_.AddRow(R"({"other":1})");
  EXPECT_TRUE(status_.Metrics("add", 0, 10)->rows.empty());
  const job::v1::Job job = *status_.Get("add");
  ASSERT_EQ(job.recent_events_size(), 2);  // STARTING is first
  EXPECT_EQ(job.recent_events(1).notice().kind(), "stalled");
  EXPECT_EQ(job.recent_events(1).notice().text(), "reward: 3 rows unscored");
}

TEST_F(LocalStatusTest, TheNewestSamplesComeFirst) {
  SampleRow a;
  a.uid = "a";
  SampleRow b;
  b.uid = "b";
  status_.AddSamples({a, b});
  EXPECT_THAT(*status_.Samples("add", 1), ElementsAre(ToJson(b)));
  EXPECT_THAT(*status_.Samples("add", 5), ElementsAre(ToJson(b), ToJson(a)));
}

TEST_F(LocalStatusTest, KnowsOneJobAndNoWorkersBeforeTheyAreThere) {
  EXPECT_EQ(status_.Get("other").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status_.Samples("other", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status_.Cluster()->workers_size(), 0);
  EXPECT_EQ(status_.Identity().role, "local");
}

}  // namespace
}  // namespace freshet
