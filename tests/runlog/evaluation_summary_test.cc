#include "runlog/evaluation_summary.h"

#include <memory>
#include <utility>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/log_lines.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

EvaluationRow Scored(Score score, int64_t tokens) {
  return {std::make_shared<const Score>(std::move(score)), "", tokens};
}
EvaluationRow Failed(const std::string& error, int64_t tokens = 0) {
  return {nullptr, error, tokens};
}
job::v1::EvalSet Set(int64_t samples = 1, const std::vector<int64_t>& pass_at = {}) {
  job::v1::EvalSet set;
  set.set_name("heldout");
  set.set_samples_per_prompt(samples);
  set.set_pass_reward(1);
  for (const int64_t k : pass_at) set.add_pass_at(k);
  return set;
}
EvaluationState StateOf(std::vector<EvaluationRow> rows) {
  const int64_t count = std::ssize(rows);
  return {{2, 20}, count, count, "", std::move(rows)};
}

TEST(EvaluationSummary, HasTheMeansOfAllRowsAndThePolicy) {
  const LogLines log;
  const auto metrics = SummarizeEvaluation(
      Set(), StateOf({Scored({2, {{"exact", 1}, {"short", 0.5}}}, 4),
                      Scored({0, {{"exact", 0}, {"short", 1}}, ScoreOutcome::kWrongFormat}, 1),
                      Scored({1, {{"exact", 0.5}, {"short", 0}}}, 4)}));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_name, "heldout");
  EXPECT_EQ(metrics->policy_version, 20);
  EXPECT_EQ(metrics->lineage, 2);
  EXPECT_EQ(metrics->rows, 3);
  EXPECT_EQ(metrics->eval_failed_rows, 0);
  EXPECT_EQ(metrics->eval_accuracy, 1);           // (2 + 0 + 1) / 3
  EXPECT_EQ(metrics->completion_length_mean, 3);  // (4 + 1 + 4) / 3
  EXPECT_THAT(metrics->reward_components,
              ElementsAre(Pair("exact", 0.5), Pair("short", 0.5)));  // 1.5 / 3 each
  EXPECT_THAT(log.With("event=evaluation_rows_failed"), IsEmpty());
}

// 49 * (1.0 / 49) != 1: the sum is divided, not the rows.
TEST(EvaluationSummary, APerfectScoreIsExact) {
  const std::vector<EvaluationRow> rows(49, Scored({1, {{"exact", 1}}}, 7));
  const auto metrics = SummarizeEvaluation(Set(), StateOf(rows));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_accuracy, 1.0);
  EXPECT_EQ(metrics->reward_components.at("exact"), 1.0);
  EXPECT_EQ(metrics->completion_length_mean, 7.0);
  EXPECT_EQ(metrics->rows, 49);
}

TEST(EvaluationSummary, AFailureIsNeverARewardAndIsLeftOut) {
  const LogLines log;
  const auto metrics = SummarizeEvaluation(
      Set(), StateOf({Scored({1, {{"exact", 1}}}, 4), Failed("the sandbox is full", 9),
                      Failed("no answer: too long"), Scored({0, {{"exact", 0}}}, 2)}));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->rows, 4);
  EXPECT_EQ(metrics->eval_failed_rows, 2);
  EXPECT_EQ(metrics->eval_accuracy, 0.5);         // 1 / 2
  EXPECT_EQ(metrics->completion_length_mean, 3);  // (4 + 2) / 2
  EXPECT_THAT(metrics->reward_components, ElementsAre(Pair("exact", 0.5)));
  EXPECT_THAT(log.With("event=evaluation_rows_failed"),
              ElementsAre(AllOf(HasSubstr("version=20 count=2 "),
                                HasSubstr("row 1: the sandbox is full"))));
}

TEST(EvaluationSummary, WithoutAnyScoreThereIsNoResult) {
  const auto metrics = SummarizeEvaluation(
      Set(), StateOf({Failed("the environment raised"), Failed("the sandbox is full", 3)}));
  EXPECT_EQ(metrics.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(metrics.status()), "none of 2 rows has a score; row 0: the environment raised");
}

// Rows of 3 samples with 2, 0 and 3 correct ones: pass@1 = (2/3 + 0 + 1) / 3, and of 2 samples of
// the first row one is always correct.
TEST(EvaluationSummary, SeveralSamplesOfARowGiveTheirMeanAndPassAtK) {
  std::vector<EvaluationRow> samples;
  for (const double reward : {1.0, 0.5, 1.5, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0}) {
    samples.push_back(Scored({reward, {}}, 4));
  }
  const auto metrics = SummarizeEvaluation(Set(3, {1, 2, 3}), StateOf(samples));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->rows, 3);
  EXPECT_EQ(metrics->samples_per_prompt, 3);
  EXPECT_DOUBLE_EQ(metrics->eval_accuracy, 6.0 / 9);
  EXPECT_THAT(metrics->eval_pass_at,
              ElementsAre(Pair(1, DoubleEq(5.0 / 9)), Pair(2, DoubleEq(2.0 / 3)),
                          Pair(3, DoubleEq(2.0 / 3))));
}

TEST(EvaluationSummary, SamplesWithoutAScoreLeaveARowOutOfThePassAtKThatNeedsThem) {
  const auto metrics = SummarizeEvaluation(
      Set(2, {1, 2}), StateOf({Scored({1, {}}, 4), Failed("full"), Scored({0, {}}, 4),
                               Scored({0, {}}, 4), Failed("full"), Failed("full")}));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->rows, 3);
  EXPECT_EQ(metrics->eval_failed_rows, 1);
  EXPECT_EQ(metrics->eval_failed_samples, 3);
  EXPECT_DOUBLE_EQ(metrics->eval_accuracy, 1.0 / 3);
  EXPECT_THAT(metrics->eval_pass_at, ElementsAre(Pair(1, 0.5), Pair(2, 0.0)));
}

TEST(EvaluationSummary, PassAtKIsAbsentIfNoRowHasKScores) {
  const auto metrics =
      SummarizeEvaluation(Set(2, {1, 2}), StateOf({Scored({1, {}}, 4), Failed("full")}));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(metrics->eval_pass_at, ElementsAre(Pair(1, 1.0)));
}

TEST(EvaluationSummary, RoundingErrorsOfAWeightedSumDoNotMakeASampleWrong) {
  ASSERT_LT(0.7 + 0.2 + 0.1, 1.0);
  const auto metrics =
      SummarizeEvaluation(Set(1, {1}), StateOf({Scored({0.7 + 0.2 + 0.1, {}}, 4)}));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(metrics->eval_pass_at, ElementsAre(Pair(1, 1.0)));
}

TEST(EvaluationSummary, TheNewestOfEachSetIsKept) {
  google::protobuf::RepeatedPtrField<job::v1::Evaluation> newest;
  EvalMetrics row;
  row.eval_name = "a";
  row.eval_accuracy = 0.25;
  row.eval_pass_at = {{1, 0.25}, {4, 0.5}};
  SetNewestEvaluation(row, newest);
  row.eval_name = "b";
  SetNewestEvaluation(row, newest);
  row.eval_name = "a";
  row.policy_version = 20;
  row.eval_pass_at = {{1, 0.75}};
  SetNewestEvaluation(row, newest);
  ASSERT_EQ(newest.size(), 2);
  EXPECT_EQ(newest[0].name(), "a");
  EXPECT_EQ(newest[0].policy_version(), 20);
  EXPECT_EQ(newest[0].pass_at().size(), 1U);
  EXPECT_EQ(newest[0].pass_at().at(1), 0.75);
  EXPECT_EQ(newest[1].name(), "b");
  EXPECT_EQ(newest[1].policy_version(), 0);
}

}  // namespace
}  // namespace freshet
