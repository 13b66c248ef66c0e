#include "runlog/display_format.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

StepView Step() {
  StepView view;
  view.metrics.step = 57;
  view.metrics.reward_mean = 0.8125;
  view.metrics.staleness_p50 = 1;
  view.metrics.staleness_max = 2;
  view.metrics.tokens_generated = 24600;
  view.metrics.tokens_trained = 1620;
  view.metrics.step_seconds = 2;
  view.metrics.trainer_wait_seconds = 0.5;
  view.metrics.rollout_idle_seconds = 0.1;
  view.total_steps = 140;
  view.staleness_bound = 2;
  for (int i = 0; i < 30; ++i) view.recent_rewards.push_back(i);
  view.seconds_left = 83;
  return view;
}

TEST(HumanCount, KeepsThreeDigits) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(812), "812");
  EXPECT_EQ(HumanCount(999.6), "1.00k");
  EXPECT_EQ(HumanCount(12345), "12.3k");
  EXPECT_EQ(HumanCount(99960), "100k");
  EXPECT_EQ(HumanCount(999999), "1.00M");
  EXPECT_EQ(HumanCount(4.56e9), "4.56G");
  EXPECT_EQ(HumanCount(NAN), "-");
}

TEST(HumanSeconds, ChoosesItsUnits) {
  EXPECT_EQ(HumanSeconds(0), "0.0s");
  EXPECT_EQ(HumanSeconds(4.23), "4.2s");
  EXPECT_EQ(HumanSeconds(9.97), "10s");
  EXPECT_EQ(HumanSeconds(59.6), "1m00s");
  EXPECT_EQ(HumanSeconds(83), "1m23s");
  EXPECT_EQ(HumanSeconds(7500), "2h05m");
  EXPECT_EQ(HumanSeconds(-1), "-");
}

TEST(Sparkline, SpansLowestToHighestOfTheLastValues) {
  EXPECT_EQ(Sparkline({9, 0, 1, 2, 3, 4, 5, 6, 7}, 8),
            "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588");
  EXPECT_EQ(Sparkline({5, 5}, 20), "\u2585\u2585");
  EXPECT_EQ(Sparkline({0, NAN, 1}, 20), "\u2581 \u2588");
  EXPECT_EQ(Sparkline({}, 20), "");
}

TEST(ProgressBar, ClampsItsFraction) {
  EXPECT_EQ(ProgressBar(0.5, 4), "\u2588\u2588\u2591\u2591");
  EXPECT_EQ(ProgressBar(7, 2), "\u2588\u2588");
  EXPECT_EQ(ProgressBar(-1, 2), "\u2591\u2591");
  EXPECT_EQ(ProgressBar(NAN, 2), "\u2591\u2591");
}

TEST(Columns, CountsCharactersNotBytesNorColors) {
  EXPECT_EQ(Columns("ab"), 2);
  EXPECT_EQ(Columns("\x1b[1m\u2588\u2588\x1b[0m"), 2);
}

TEST(FormatLiveStep, HoldsEverythingInOneLineOf120Columns) {
  const std::string line = FormatLiveStep(Step(), {200, false});
  EXPECT_LE(Columns(line), 120);
  for (const char* part : {"\u2588\u2591", " 57/140", "reward 0.812", "\u2581", "\u2588",
                           "stale 1/2 of 2", "12.3k gen", "810 train", "wait 25%", "idle 5%"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
}

TEST(FormatLiveStep, FitsEveryWidth) {
  for (const bool color : {false, true}) {
    for (int width = 1; width <= 130; ++width) {
      const std::string line = FormatLiveStep(Step(), {width, color});
      EXPECT_LE(Columns(line), std::min(width, 120)) << width;
      if (width >= 40) {
        EXPECT_THAT(line, HasSubstr("0.812")) << width;
      }
    }
  }
}

TEST(FormatLiveStep, ColorsOnlyWhenAsked) {
  EXPECT_THAT(FormatLiveStep(Step(), {100, true}), HasSubstr("\x1b["));
  EXPECT_EQ(Columns(FormatLiveStep(Step(), {100, true})),
            Columns(FormatLiveStep(Step(), {100, false})));
}

TEST(FormatLiveStep, SurvivesEmptyAndBrokenNumbers) {
  StepView view;
  view.metrics.reward_mean = NAN;
  view.metrics.trainer_wait_seconds = std::numeric_limits<double>::infinity();
  EXPECT_THAT(FormatLiveStep(view, {120, false}), HasSubstr("reward -"));
}

TEST(FormatLiveStep, SharesIdleTimeBetweenEngines) {
  StepView view = Step();
  view.metrics.rollout_idle_seconds = 2;
  view.rollout_engines = 2;  // 2 idle seconds of 2 engines * 2 s
  EXPECT_THAT(FormatLiveStep(view, {120, false}), HasSubstr("idle 50%"));
}

TEST(FormatPlainStep, IsWordsOnly) {
  const std::string line = FormatPlainStep(Step());
  EXPECT_EQ(line.rfind("step 57/140 reward 0.812 staleness 1/2 of 2 generated 12.3k tok/s "
                       "trained 810 tok/s trainer wait 25% rollout idle 5%",
                       0),
            0U);
  for (const char c : line) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST(FormatSetup, ShowsEachPartAndWrapsLongOnes) {
  SetupView view;
  view.job = "arithmetic";
  view.model = "llama";
  view.parameters = 790000;
  view.dataset = "arithmetic, 2 digits";
  view.prompts_per_step = 64;
  view.group_size = 8;
  view.steps = 140;
  view.staleness_bound = 2;
  view.staleness_policy = "wait";
  view.loss = "advantage grpo, ratio token, anchor proximal, clip 0.2 to 0.28, correction tis 2";
  view.warning = "samples up to 2 versions old are trained without an importance weight";
  view.threads = "1 trainer, 1 engine";
  view.run_dir = "runs/arithmetic";
  const std::string text = FormatSetup(view, {60, false});
  for (const char* part : {"arithmetic\n", "llama, 790k parameters",
                           "64 prompts x 8 samples, 140 steps", "at most 2 versions, policy wait",
                           "warning", "up to 2 versions old", "threads", "runs/arithmetic"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("warm-up")));
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(Columns(text.substr(begin, end - begin)), 60);
    begin = end + 1;
  }
  EXPECT_EQ(begin, text.size());
}

TEST(FormatEval, ComparesWithTheFirst) {
  EvalView view;
  view.metrics.eval_name = "heldout";
  view.metrics.eval_accuracy = 0.9;
  view.metrics.policy_version = 20;
  view.metrics.rows = 512;
  EXPECT_EQ(FormatEval(view, {80, false}), "eval heldout at version 20: 0.900 over 512 rows");
  view.first_accuracy = 0.5;
  EXPECT_EQ(FormatEval(view, {80, false}),
            "eval heldout at version 20: 0.900 over 512 rows, first 0.500");
  view.metrics.eval_failed_rows = 12;
  view.metrics.eval_failed_samples = 12;
  EXPECT_EQ(FormatEval(view, {80, false}),
            "eval heldout at version 20: 0.900 over 500 rows (12 more failed), first 0.500");
  view.metrics.samples_per_prompt = 4;
  view.metrics.eval_pass_at = {{1, 0.9}, {4, 0.975}};
  EXPECT_EQ(FormatEval(view, {80, false}),
            "eval heldout at version 20: 0.900 over 500 rows x 4 samples (12 more failed), pass@1 "
            "0.900, pass@4 0.975, first 0.500");
  view.metrics.eval_failed_samples = 60;
  view.metrics.eval_pass_at.clear();
  EXPECT_EQ(FormatEval(view, {80, false}),
            "eval heldout at version 20: 0.900 over 500 rows x 4 samples (12 more failed), 60 "
            "samples failed, first 0.500");
}

TEST(FormatSummary, SaysWhereResultsLieAndHowToResume) {
  SummaryView view;
  view.job = "arithmetic";
  view.outcome = "interrupted";
  view.steps = 40;
  view.total_steps = 140;
  view.evaluations = {{"heldout", 0.4, 0.9, 0, 40}};
  view.run_dir = "runs/arithmetic";
  view.report = "report.html";
  view.checkpoint = "checkpoints/step-40";
  view.resume_command = "freshet local --resume runs/arithmetic";
  const std::string text = FormatSummary(view, {80, false});
  for (const char* part : {"arithmetic interrupted after 40 of 140 steps", "heldout 0.400 -> 0.900",
                           "runs/arithmetic/report.html", "runs/arithmetic/checkpoints/step-40",
                           "freshet local --resume runs/arithmetic"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(FormatSummary, SaysHowManyTokensWereTrainedOrGenerated) {
  SummaryView view;
  view.steps = 1;
  view.tokens_trained = 810;
  view.tokens_generated = 950;
  EXPECT_THAT(FormatSummary(view, {80, false}),
              AllOf(ContainsRegex("trained +810 tokens"), Not(HasSubstr("generated"))));
  view.generates = true;
  EXPECT_THAT(FormatSummary(view, {80, false}),
              AllOf(ContainsRegex("generated +950 tokens"), Not(HasSubstr("trained"))));
}

TEST(FormatSummary, NamesNoReportThatIsNotThere) {
  SummaryView view;
  view.job = "arithmetic";
  view.outcome = "interrupted";
  EXPECT_THAT(FormatSummary(view, {80, false}), Not(HasSubstr("report")));
}

}  // namespace
}  // namespace freshet
