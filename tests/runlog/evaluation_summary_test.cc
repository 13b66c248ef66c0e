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
EvaluationState StateOf(std::vector<EvaluationRow> rows) {
  const int64_t count = std::ssize(rows);
  return {{2, 20}, count, count, "", std::move(rows)};
}

TEST(EvaluationSummary, HasTheMeansOfAllRowsAndThePolicy) {
  const LogLines log;
  const auto metrics = SummarizeEvaluation(
      "heldout", StateOf({Scored({2, {{"exact", 1}, {"short", 0.5}}}, 4),
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
  const auto metrics = SummarizeEvaluation("heldout", StateOf(rows));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->eval_accuracy, 1.0);
  EXPECT_EQ(metrics->reward_components.at("exact"), 1.0);
  EXPECT_EQ(metrics->completion_length_mean, 7.0);
  EXPECT_EQ(metrics->rows, 49);
}

TEST(EvaluationSummary, AFailureIsNeverARewardAndIsLeftOut) {
  const LogLines log;
  const auto metrics = SummarizeEvaluation(
      "heldout", StateOf({Scored({1, {{"exact", 1}}}, 4), Failed("the sandbox is full", 9),
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
      "heldout", StateOf({Failed("the environment raised"), Failed("the sandbox is full", 3)}));
  EXPECT_EQ(metrics.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(metrics.status()), "none of 2 rows has a score; row 0: the environment raised");
}

}  // namespace
}  // namespace freshet
