#include "runlog/metrics_log.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

StepMetrics Step(int64_t step, int64_t lineage, double reward = 0) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.policy_version = step;
  metrics.lineage = lineage;
  metrics.reward_mean = reward;
  return metrics;
}

EvalMetrics Eval(int64_t version, int64_t lineage, double accuracy) {
  EvalMetrics metrics;
  metrics.eval_name = "heldout";
  metrics.policy_version = version;
  metrics.lineage = lineage;
  metrics.eval_accuracy = accuracy;
  return metrics;
}

TEST(MetricsLog, AppendsRowsThatCanBeReadBack) {
  const ScratchFolder folder;
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(folder.File("metrics.jsonl"));
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->Append(Eval(0, 0, 0.5)).ok());
  ASSERT_TRUE(log->Append(Step(1, 0)).ok());
  const absl::StatusOr<MetricsHistory> history = ReadMetrics(folder.File("metrics.jsonl"));
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->steps.size(), 1U);
  EXPECT_EQ(history->evals.size(), 1U);
  EXPECT_FALSE(history->torn);
}

TEST(MetricsLog, CutsATornLineWhenOpenedAgain) {
  const ScratchFolder folder;
  const std::string whole = ToJson(Step(1, 0)) + "\n";
  folder.Write("metrics.jsonl", whole + "{\"step\":2,");
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(folder.File("metrics.jsonl"));
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->Append(Step(2, 1)).ok());
  EXPECT_EQ(folder.Read("metrics.jsonl"), whole + ToJson(Step(2, 1)) + "\n");
}

TEST(ReadMetrics, IgnoresATornLastLine) {
  const ScratchFolder folder;
  folder.Write("metrics.jsonl", ToJson(Step(1, 0)) + "\n{\"step\":2");
  const absl::StatusOr<MetricsHistory> history = ReadMetrics(folder.File("metrics.jsonl"));
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->steps.size(), 1U);
  EXPECT_TRUE(history->torn);
}

TEST(ReadMetrics, NamesFileAndLineOfAMalformedRow) {
  const ScratchFolder folder;
  folder.Write("metrics.jsonl", ToJson(Step(1, 0)) + "\nnonsense\n" + ToJson(Step(2, 0)) + "\n");
  const absl::StatusOr<MetricsHistory> history = ReadMetrics(folder.File("metrics.jsonl"));
  EXPECT_TRUE(absl::IsInvalidArgument(history.status()));
  EXPECT_THAT(std::string(history.status().message()), ::testing::HasSubstr("metrics.jsonl:2:"));
}

TEST(SurvivingMetrics, LetsTheHighestLineageCount) {
  MetricsHistory history;
  // Lineage 0 reached step 5. Lineage 1 was resumed from version 2 and is at step 4.
  for (int64_t step = 1; step <= 5; ++step) history.steps.push_back(Step(step, 0, 0.1));
  for (int64_t step = 3; step <= 4; ++step) history.steps.push_back(Step(step, 1, 0.9));
  history.evals = {Eval(0, 0, 0.1), Eval(2, 0, 0.2), Eval(4, 0, 0.3), Eval(4, 1, 0.4)};
  const MetricsHistory surviving = SurvivingMetrics(history);
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const StepMetrics& step : surviving.steps) steps.emplace_back(step.step, step.lineage);
  EXPECT_THAT(steps, ElementsAre(std::pair(1, 0), std::pair(2, 0), std::pair(3, 1),
                                 std::pair(4, 1)));  // step 5 of lineage 0 is orphaned
  std::vector<double> accuracies;
  for (const EvalMetrics& eval : surviving.evals) accuracies.push_back(eval.eval_accuracy);
  EXPECT_THAT(accuracies, ElementsAre(0.1, 0.2, 0.4));
}

TEST(SurvivingMetrics, FollowsForksOfForks) {
  MetricsHistory history;
  for (int64_t step = 1; step <= 4; ++step) history.steps.push_back(Step(step, 0));
  for (int64_t step = 4; step <= 6; ++step) history.steps.push_back(Step(step, 1));
  for (int64_t step = 2; step <= 3; ++step) history.steps.push_back(Step(step, 2));
  const MetricsHistory surviving = SurvivingMetrics(history);
  ASSERT_EQ(surviving.steps.size(), 3U);
  EXPECT_EQ(surviving.steps[0].lineage, 0);
  EXPECT_EQ(surviving.steps[1].lineage, 2);
  EXPECT_EQ(surviving.steps[2].lineage, 2);
}

}  // namespace
}  // namespace freshet
