#include "controller/jobs/driver/evaluation_score.h"

#include "controller/jobs/plan/submission.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr int kRows = 6;

class EvaluationScoreTest : public testing::Test {
 protected:
  EvaluationScoreTest() {
    Submission submission;
    submission.yaml = TinyClusterJob() + "eval: {rows: 6}\n";
    const CheckedSubmission checked = CheckSubmission(submission, DataRoots::Unlimited());
    EXPECT_TRUE(checked.errors.empty()) << FormatConfigErrors(checked.errors);
    spec_ = checked.spec;
    FakeTrainerGateway trainers;
    auto inputs = OpenJobInputs(spec_, *trainers.DescribeModel("", spec_, absl::Seconds(1)),
                                DataRoots::Unlimited());
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    inputs_ = *inputs;
    scoring_.reward_workers = [this] { return workers_; };
    scoring_.stopped = [this] { return stopped_; };
    scoring_.pause = [this] {
      if (++pauses_ == 3) workers_ = {"w:1"};
    };
    scoring_.call_deadline = absl::Seconds(1);
  }
  // A report in which all answers are right except answer `wrong`.
  cluster::v1::ReportEvaluationRequest Report(int wrong = -1,
                                              const std::string& completion = "no") {
    cluster::v1::ReportEvaluationRequest report;
    report.mutable_policy()->set_version(20);
    for (int i = 0; i < kRows; ++i) {
      const std::string answer = inputs_->data.held_out->Get(i)->attributes.at("answer");
      report.add_completions(i == wrong ? completion : answer);
      report.add_completion_tokens(4);
      report.add_stopped(i != wrong);
    }
    return report;
  }
  absl::StatusOr<EvalMetrics> Score(const cluster::v1::ReportEvaluationRequest& report) {
    return ScoreEvaluation("tiny", spec_, *inputs_, report, rewards_, scoring_);
  }

  job::v1::JobSpec spec_;
  std::shared_ptr<const JobInputs> inputs_;
  FakeRewardGateway rewards_;
  std::vector<std::string> workers_ = {"w:1", "v:1"};
  bool stopped_ = false;
  int pauses_ = 0;
  EvaluationScoring scoring_;
};

TEST_F(EvaluationScoreTest, APerfectScoreIsExactlyOne) {
  const auto metrics = Score(Report());
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_accuracy, 1.0);
  EXPECT_EQ(metrics->rows, kRows);
  EXPECT_EQ(metrics->policy_version, 20);
  EXPECT_EQ(metrics->completion_length_mean, 4);
  EXPECT_EQ(metrics->reward_components.at("exact"), 1.0);
  EXPECT_EQ(metrics->eval_name, "heldout");
}

TEST_F(EvaluationScoreTest, AWrongAnswerCounts) {
  EXPECT_DOUBLE_EQ(Score(Report(2))->eval_accuracy, 5.0 / 6);
}

TEST_F(EvaluationScoreTest, AsksForTheScorersOfTheJob) {
  auto report = Report(2);
  for (int i = 0; i < kRows; ++i) report.add_env_rewards(i / 4.0);
  ASSERT_TRUE(Score(report).ok());
  const reward::v1::ScoreRequest request = rewards_.last();
  EXPECT_EQ(request.job_id(), "tiny");
  EXPECT_FALSE(request.has_reward());
  ASSERT_EQ(request.items_size(), kRows);
  EXPECT_EQ(request.items(3).env_reward(), 0.75);
  EXPECT_TRUE(request.items(3).stopped());
  EXPECT_FALSE(request.items(2).stopped());
}

TEST_F(EvaluationScoreTest, AnotherWorkerIsAskedWhenOneFails) {
  rewards_.failing = 3;
  EXPECT_EQ(Score(Report())->eval_accuracy, 1.0);
  EXPECT_EQ(rewards_.calls, 4);
}

TEST_F(EvaluationScoreTest, WithoutARewardWorkerItWaitsForOne) {
  workers_.clear();
  EXPECT_EQ(Score(Report())->eval_accuracy, 1.0);
  EXPECT_EQ(pauses_, 3);
}

TEST_F(EvaluationScoreTest, WhileARewardServiceIsAwayItWaits) {
  rewards_.failing = 10 * scoring_.max_tries;
  const auto metrics = Score(Report());
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_failed_rows, 0);
}

TEST_F(EvaluationScoreTest, AFailureIsNeverARewardAndIsLeftOut) {
  const auto metrics = Score(Report(4, "infra"));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_accuracy, 1.0);
  EXPECT_EQ(metrics->rows, kRows);
  EXPECT_EQ(metrics->eval_failed_rows, 1);
  EXPECT_EQ(metrics->reward_components.at("exact"), 1.0);
  EXPECT_EQ(metrics->completion_length_mean, 4);
  EXPECT_EQ(rewards_.calls, spec_.reward().max_attempts());
  EXPECT_EQ(pauses_, spec_.reward().max_attempts() - 1);
}

TEST_F(EvaluationScoreTest, ARowThatWasNotGeneratedIsLeftOut) {
  auto report = Report(1);
  (*report.mutable_failed_rows())[1] = "the environment raised";
  const auto metrics = Score(report);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_accuracy, 1.0);
  EXPECT_EQ(metrics->eval_failed_rows, 1);
  EXPECT_EQ(rewards_.last().items_size(), kRows - 1) << "nobody scores it";
  (*report.mutable_failed_rows())[kRows] = "there is no such row";
  EXPECT_EQ(Score(report).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EvaluationScoreTest, WithoutAnyScoreThereIsNoResult) {
  auto report = Report();
  for (int i = 0; i < kRows; ++i) (*report.mutable_failed_rows())[i] = "the environment raised";
  const auto metrics = Score(report);
  EXPECT_EQ(metrics.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(metrics.status()),
              HasSubstr("none of 6 rows has a score; row 0: the environment raised"));
}

TEST_F(EvaluationScoreTest, AStopEndsIt) {
  stopped_ = true;
  EXPECT_EQ(Score(Report()).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(EvaluationScoreTest, AReportThatDoesNotFitTheRowsIsRefused) {
  auto report = Report();
  report.add_completions("one more");
  EXPECT_EQ(Score(report).status().code(), absl::StatusCode::kInvalidArgument);
  report = Report();
  report.add_env_rewards(1);
  EXPECT_EQ(Score(report).status().code(), absl::StatusCode::kInvalidArgument);
  report = Report();
  report.add_stopped(true);
  EXPECT_EQ(Score(report).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EvaluationScoreTest, RowsAreHandedOutInBoundedPages) {
  EXPECT_EQ(NumRows(spec_, *inputs_, true), kRows);
  EXPECT_EQ(NumRows(spec_, *inputs_, false), 50);
  EXPECT_EQ(FetchRows(spec_, *inputs_, true, 4, 10)->size(), 2U);
  EXPECT_EQ(FetchRows(spec_, *inputs_, false, 50, 1)->size(), 0U);
  EXPECT_EQ(FetchRows(spec_, *inputs_, false, 51, 1).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(spec_, *inputs_, false, -1, 1).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(spec_, *inputs_, false, 0, kMaxRowsPerFetch + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
