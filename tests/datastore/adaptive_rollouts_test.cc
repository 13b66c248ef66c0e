// Decisions about number and length of a group's samples.
#include "datastore/adaptive_rollouts.h"

#include <limits>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr AdaptiveOptions kOptions{2, 1.0, 1.5};
constexpr int32_t kGroupSize = 8;

RolloutHistory Known(double successes, double samples, int64_t longest = 0) {
  return {successes, samples, longest};
}

TEST(AdaptiveRollouts, MoreSuccessMeansFewerSamples) {
  const auto samples = [](double successes) {
    return DecideRollouts(kOptions, kGroupSize, Known(successes, 8), {}).samples;
  };
  EXPECT_EQ(samples(0), 8) << "a success may still be found";
  EXPECT_EQ(samples(4), 8);
  EXPECT_EQ(samples(5), 8);  // 2 + 6 * 0.9375, rounded up
  EXPECT_EQ(samples(6), 7);  // 2 + 6 * 0.75, rounded up
  EXPECT_EQ(samples(7), 5);  // 2 + 6 * 0.4375, rounded up
  EXPECT_EQ(samples(8), 2);
}

TEST(AdaptiveRollouts, TheRowDecidesBeforeItsTask) {
  const RolloutHistory solved = Known(8, 8, 10);
  const RolloutDecision row = DecideRollouts(kOptions, kGroupSize, Known(0, 4), solved);
  EXPECT_EQ(row.samples, 8);
  EXPECT_EQ(row.max_new_tokens, 0) << "without a success there is no limit";
  const RolloutDecision task = DecideRollouts(kOptions, kGroupSize, {}, solved);
  EXPECT_EQ(task.samples, 2);
  EXPECT_EQ(task.max_new_tokens, 15);
  const RolloutDecision nothing = DecideRollouts(kOptions, kGroupSize, {}, {});
  EXPECT_EQ(nothing.samples, 8);
  EXPECT_EQ(nothing.max_new_tokens, 0);
}

TEST(AdaptiveRollouts, LengthsAreLimitedByTheLongestSuccessOnly) {
  const RolloutHistory history =
      WithGroup(kOptions, Known(1, 2, 7), kRowMemory, {{1.0, 5}, {0.9, 100}, {2.0, 9}, {0, 50}});
  EXPECT_EQ(history, Known(2.5, 5, 9));
  EXPECT_EQ(DecideRollouts(kOptions, kGroupSize, history, {}).max_new_tokens, 14);
  const AdaptiveOptions unlimited{2, 1.0, 0};
  EXPECT_EQ(DecideRollouts(unlimited, kGroupSize, history, {}).max_new_tokens, 0);
}

TEST(AdaptiveRollouts, HistoriesAreBoundedAndTheTaskServesFurtherRows) {
  RolloutHistories histories;
  Prompt prompt;
  for (size_t row = 0; row < kMaxHistories; ++row) {
    histories.Add(kOptions, prompt, StrCat(row), {{1.0, 3}, {1.0, 3}});
  }
  const auto samples = [&](const std::string& row) {
    return histories.Decide(kOptions, kGroupSize, prompt, row).samples;
  };
  EXPECT_EQ(samples("0"), 2);
  for (const std::string& row : {std::string("0"), StrCat(kMaxHistories)}) {
    histories.Add(kOptions, prompt, row, {{0, 3}, {0, 3}, {0, 3}});
  }
  EXPECT_EQ(samples("0"), 8) << "known rows go on";
  EXPECT_LT(samples(StrCat(kMaxHistories)), 8) << "its task mostly succeeds";
}

TEST(AdaptiveRollouts, OptionsHaveBounds) {
  EXPECT_TRUE(kOptions.Validate(2).ok());
  EXPECT_FALSE(kOptions.Validate(1).ok());
  EXPECT_FALSE((AdaptiveOptions{0, 1, 0}).Validate(8).ok());
  EXPECT_FALSE((AdaptiveOptions{2, 1, 0.5}).Validate(8).ok());
  EXPECT_FALSE((AdaptiveOptions{2, 1, 1001}).Validate(8).ok());
  EXPECT_FALSE((AdaptiveOptions{2, 1, std::numeric_limits<double>::quiet_NaN()}).Validate(8).ok());
  EXPECT_FALSE((AdaptiveOptions{2, std::numeric_limits<double>::infinity(), 0}).Validate(8).ok());
}

}  // namespace
}  // namespace freshet
