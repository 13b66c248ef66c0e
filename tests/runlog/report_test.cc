#include "runlog/report.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/markup_check.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics Step(int64_t step) {
  const auto at = static_cast<double>(step);
  StepMetrics m;
  m.step = step;
  m.policy_version = step;
  m.reward_mean = 0.95 - 0.5 * std::exp(-at / 40) + 0.03 * std::sin(at * 12.9898);
  m.reward_components = {{"exact", m.reward_mean}, {"length", 0.6 + 0.1 * std::sin(at)}};
  m.grad_norm = 0.8 + 0.3 * std::sin(at * 3.7);
  m.entropy = 0.9 * std::exp(-at / 60) + 0.1;
  m.kl_behavior = 0.002 + 0.001 * std::sin(at * 1.7);
  m.ratio_clip_fraction = 0.02;
  m.staleness_mean = 1.1;
  m.staleness_p50 = 1;
  m.staleness_max = 2;
  m.staleness_tokens = {{0, 300}, {1, 1200}, {2, 500}};
  m.completion_length_mean = 3.8;
  m.completion_length_p95 = 4;
  m.completion_length_max = 4;
  m.tokens_generated = 2100;
  m.tokens_trained = 2000;
  m.train_seconds = 0.5;
  m.trainer_wait_seconds = 0.2 + 0.1 * std::sin(at * 2.1);
  m.weight_swap_seconds = 0.01;
  m.checkpoint_seconds = step % 20 == 0 ? 0.3 : 0;
  m.step_seconds = 0.8 + m.checkpoint_seconds;
  m.wall_seconds = 30 + at * 0.8;
  return m;
}

// A run folder of `steps` steps.
void WriteRun(const ScratchFolder& folder, int64_t steps) {
  folder.Write("job.yaml",
               "name: arith<metic>\ngroup_size: 8\nprompts_per_step: 64\n"
               "staleness: {max: 2, policy: wait}\ntrainer: {steps: 140}\n");
  std::string metrics;
  for (int64_t step = 0; step <= steps; ++step) {
    if (step > 0) metrics += ToJson(Step(step)) + "\n";
    if (step % 20 != 0) continue;
    EvalMetrics eval;
    eval.eval_name = "heldout";
    eval.policy_version = step;
    eval.rows = 512;
    eval.eval_accuracy = 0.95 - 0.5 * std::exp(-static_cast<double>(step) / 40);
    metrics += ToJson(eval) + "\n";
  }
  folder.Write("metrics.jsonl", metrics + "{\"step\":");
  std::string samples;
  for (int64_t step = 1; step <= steps; ++step) {
    SampleRow row;
    row.step = step;
    row.prompt = "12+34=";
    row.completion = "<script>alert(1)</script> & \xff";
    row.reward = 1;
    row.components = {{"exact", 1}};
    row.spans = {{{0, step - 1}, 0, 4}};
    row.finish = "stop";
    samples += ToJson(row) + "\n";
  }
  folder.Write("samples.jsonl", samples);
}

TEST(WriteReport, MakesOneWellFormedPage) {
  const ScratchFolder folder;
  WriteRun(folder, 140);
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  const std::string page = folder.Read("report.html");
  EXPECT_EQ(MarkupError(page), "");
  for (const char* part :
       {"arith&lt;metic&gt;", ">Reward<", ">Evaluation<", ">Staleness of trained tokens<",
        ">Throughput<", ">Where the trainer&#39;s time went<", ">Entropy<", ">KL divergence<",
        ">Completion length<", ">Gradient norm<", ">exact</li>", ">length</li>", "the bound is 2",
        "<details>", "prefers-color-scheme:dark", "60.0%"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("no data")));
}

TEST(WriteReport, AsksNothingOfAnyoneAndRunsNothing) {
  const ScratchFolder folder;
  WriteRun(folder, 3);
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  const std::string page = folder.Read("report.html");
  for (const char* part : {"http:", "https:", "<script", "src=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt; &amp; \xEF\xBF\xBD"));
}

TEST(WriteReport, MakesAPageOfARunThatJustBegan) {
  const ScratchFolder folder;
  folder.Write("job.yaml", "name: young\n");
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  const std::string page = folder.Read("report.html");
  EXPECT_EQ(MarkupError(page), "");
  EXPECT_THAT(page, HasSubstr("no data"));
}

TEST(WriteReport, ShowsTheSurvivingLineage) {
  const ScratchFolder folder;
  StepMetrics orphan = Step(2);
  orphan.reward_mean = 123.5;
  StepMetrics again = Step(2);
  again.lineage = 1;
  folder.Write("metrics.jsonl",
               ToJson(Step(1)) + "\n" + ToJson(orphan) + "\n" + ToJson(again) + "\n");
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  EXPECT_THAT(folder.Read("report.html"), Not(HasSubstr("123.5")));
}

TEST(WriteReport, SurvivesNonFiniteNumbers) {
  const ScratchFolder folder;
  StepMetrics broken = Step(1);
  broken.loss = NAN;
  broken.reward_mean = NAN;
  broken.step_seconds = NAN;
  folder.Write("metrics.jsonl", ToJson(broken) + "\n");
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  EXPECT_EQ(MarkupError(folder.Read("report.html")), "");
}

TEST(WriteReport, SaysWhatIsWrong) {
  const ScratchFolder folder;
  EXPECT_TRUE(absl::IsNotFound(WriteReport(folder.path())));
  folder.Write("metrics.jsonl", "nonsense\n");
  const absl::Status status = WriteReport(folder.path());
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("metrics.jsonl:1:"));
  EXPECT_EQ(folder.Read("report.html"), "");
}

}  // namespace
}  // namespace freshet
