#include "runlog/display.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class DisplayTest : public ::testing::Test {
 protected:
  std::unique_ptr<Display> Make(bool terminal, bool color = false) {
    DisplayOptions options;
    options.terminal = terminal;
    options.color = color;
    options.width = 100;
    options.total_steps = 10;
    options.staleness_bound = 2;
    options.measure_width = [this] { return measured_width_; };
    return std::make_unique<Display>(options,
                                     [this](std::string_view text) { texts_.emplace_back(text); });
  }
  static StepMetrics Step(int64_t step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.reward_mean = 0.5;
    metrics.step_seconds = 1;
    return metrics;
  }
  std::vector<std::string> texts_;
  int measured_width_ = 0;
};

TEST_F(DisplayTest, OverwritesTheLiveLineOnATerminal) {
  const auto display = Make(true);
  display->ShowStep(Step(1));
  display->ShowStep(Step(2));
  ASSERT_EQ(texts_.size(), 2U);
  for (const std::string& text : texts_) {
    EXPECT_THAT(text, StartsWith("\r"));
    EXPECT_THAT(text, EndsWith("\x1b[K"));
    EXPECT_THAT(text, Not(HasSubstr("\n")));
  }
  EXPECT_THAT(texts_[1], HasSubstr("2/10"));
}

TEST_F(DisplayTest, KeepsTheLiveLineBelowOtherLines) {
  const auto display = Make(true);
  display->ShowStep(Step(3));
  display->ShowNote("draining");
  EXPECT_THAT(texts_[1], StartsWith("\r\x1b[Kdraining\n"));
  EXPECT_THAT(texts_[1], HasSubstr("3/10"));
}

TEST_F(DisplayTest, EndsTheLiveLineBeforeTheSummary) {
  auto display = Make(true);
  display->ShowStep(Step(3));
  display->ShowSummary({});
  EXPECT_EQ(texts_[1], "\n");
  const size_t count = texts_.size();
  display.reset();
  EXPECT_EQ(texts_.size(), count);  // no line is left to terminate
}

TEST_F(DisplayTest, EndsTheLiveLineWhenItGoes) {
  auto display = Make(true);
  display->ShowStep(Step(3));
  display.reset();
  EXPECT_EQ(texts_.back(), "\n");
}

TEST_F(DisplayTest, WritesPlainLinesElsewhere) {
  const auto display = Make(false, /*color=*/true);
  display->ShowSetup({});
  display->ShowStep(Step(1));
  EvalMetrics eval;
  eval.eval_name = "heldout";
  display->ShowEval(eval);
  display->ShowSummary({});
  for (const std::string& text : texts_) {
    EXPECT_THAT(text, EndsWith("\n"));
    EXPECT_THAT(text, Not(HasSubstr("\r")));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
}

TEST_F(DisplayTest, ThinsOutPlainWarmupLines) {
  const auto display = Make(false);
  for (int64_t step = 1; step <= 250; ++step) {
    display->ShowWarmup({"sft", step, 250, 1.0, 1.0});
  }
  EXPECT_EQ(texts_.size(), 10U);
  EXPECT_THAT(texts_.back(), HasSubstr("250/250"));
}

TEST_F(DisplayTest, RemembersTheFirstEvaluationOfEachName) {
  const auto display = Make(false);
  EvalMetrics eval;
  eval.eval_name = "heldout";
  eval.eval_accuracy = 0.25;
  display->ShowEval(eval);
  eval.eval_accuracy = 0.75;
  display->ShowEval(eval);
  EXPECT_THAT(texts_[0], Not(HasSubstr("first")));
  EXPECT_THAT(texts_[1], HasSubstr("first 0.250"));
}

TEST_F(DisplayTest, FollowsTheWidthOfTheTerminal) {
  const auto display = Make(true);
  display->ShowStep(Step(1));
  measured_width_ = 30;
  display->ShowStep(Step(2));
  const auto columns = [this](size_t i) {
    return Columns(texts_[i].substr(1, texts_[i].size() - 4));
  };
  EXPECT_GT(columns(0), 30);
  EXPECT_LT(columns(1), 30);
}

TEST_F(DisplayTest, EstimatesWhatIsLeftFromRecentSteps) {
  const auto display = Make(true);
  measured_width_ = 200;
  display->ShowStep(Step(4));  // 6 steps of 1 s each
  EXPECT_THAT(texts_[0], HasSubstr("6.0s left"));
}

}  // namespace
}  // namespace freshet
