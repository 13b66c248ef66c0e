#include "trainer/learner/learning_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace freshet {
namespace {

TEST(LearningRate, ConstantStartsAtThePeak) {
  const LearningRateSchedule schedule{ScheduleKind::kConstant, 3e-4, 0, 10, 0};
  for (const int64_t step : {-5, 0, 1, 2, 10, 1000}) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, step), 3e-4);
  }
}

TEST(LearningRate, WarmUpRisesInEqualSteps) {
  for (const ScheduleKind kind :
       {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    const LearningRateSchedule schedule{kind, 1.0, 4, 10, 0};
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.25);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.75);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1.0);
  }
}

TEST(LearningRate, LinearEndsAtTheFinalFraction) {
  const LearningRateSchedule schedule{ScheduleKind::kLinear, 1.0, 2, 10, 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.9);  // 0.2 + 0.8 * 7/8
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 6), 0.6);  // 0.2 + 0.8 * 4/8
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 11), 0.2);
}

TEST(LearningRate, LinearWithoutWarmUpStartsAtThePeak) {
  const LearningRateSchedule schedule{ScheduleKind::kLinear, 1.0, 0, 5, 0};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.0);
}

TEST(LearningRate, CosineIsHalfwayInTheMiddle) {
  const LearningRateSchedule schedule{ScheduleKind::kCosine, 1.0, 1, 9, 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.2 + 0.4 * (1 + std::sqrt(0.5)));  // p = 1/4
  EXPECT_NEAR(LearningRate(schedule, 5), 0.6, 1e-15);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 9), 0.2);
}

TEST(LearningRate, NeverRisesAfterWarmUp) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    for (const int64_t warmup : {0, 1, 7, 23}) {
      const LearningRateSchedule schedule{kind, 1.0, warmup, 23, 0.1};
      for (int64_t step = std::max<int64_t>(warmup, 1); step < 30; ++step) {
        EXPECT_LE(LearningRate(schedule, step + 1), LearningRate(schedule, step));
        EXPECT_GE(LearningRate(schedule, step + 1), 0.1);
      }
    }
  }
}

TEST(LearningRate, OneStepHasThePeak) {
  for (const int64_t warmup : {0, 1}) {
    EXPECT_DOUBLE_EQ(LearningRate({ScheduleKind::kCosine, 1.0, warmup, 1, 0}, 1), 1.0);
  }
}

TEST(LearningRate, ParsesItsNames) {
  EXPECT_EQ(*ParseScheduleKind("constant"), ScheduleKind::kConstant);
  EXPECT_EQ(*ParseScheduleKind("linear"), ScheduleKind::kLinear);
  EXPECT_EQ(*ParseScheduleKind("cosine"), ScheduleKind::kCosine);
  EXPECT_FALSE(ParseScheduleKind("step").ok());
}

TEST(LearningRate, RefusesMembersOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(ValidateSchedule({ScheduleKind::kLinear, 1, 10, 10, 1}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, -1, 0, 10, 0}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, nan, 0, 10, 0}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, 1, 11, 10, 0}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, 1, -1, 10, 0}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, 1, 0, 0, 0}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, 1, 0, 10, 1.1}).ok());
  EXPECT_FALSE(ValidateSchedule({ScheduleKind::kLinear, 1, 0, 10, nan}).ok());
}

}  // namespace
}  // namespace freshet
