#include "trainer/learner/turn_returns.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;

Score Scored(double reward, std::vector<StepReward> steps) {
  Score score;
  score.reward = reward;
  score.step_rewards = std::move(steps);
  return score;
}

TEST(TurnReturns, ASampleWithoutStepsIsOneTurn) {
  EXPECT_THAT(TurnReturns(Scored(0.5, {}), 7, 0.9), ElementsAre(Turn{0, 7, 0.5}));
}

TEST(TurnReturns, AValueIsWhatFollows) {
  EXPECT_THAT(TurnReturns(Scored(1.75, {{3, 1}, {5, 0.25}, {9, 0.5}}), 9, 1),
              ElementsAre(Turn{0, 3, 1.75}, Turn{3, 5, 0.75}, Turn{5, 9, 0.5}));
}

TEST(TurnReturns, TheRestOfTheRewardIsOfTheLastTurn) {
  EXPECT_THAT(TurnReturns(Scored(4, {{3, 1}, {9, 1}}), 9, 0.5),
              ElementsAre(Turn{0, 3, 1 + 0.5 * 3}, Turn{3, 9, 3}));
  EXPECT_THAT(TurnReturns(Scored(4, {{3, 1}, {8, 1}}), 9, 0.5),
              ElementsAre(Turn{0, 3, 2}, Turn{3, 8, 1 + 0.5 * 2}, Turn{8, 9, 2}))
      << "tokens after the last step are a turn";
}

TEST(TurnReturns, WhatCancelsIsExactlyZero) {
  EXPECT_THAT(TurnReturns(Scored(0.3, {{1, 0.1}, {2, 0.2}}), 3, 1),
              ElementsAre(testing::_, Turn{1, 2, 0.2}, Turn{2, 3, 0}));
}

TEST(TurnReturns, StepsBeyondTheResponseAreItsLast) {
  EXPECT_THAT(TurnReturns(Scored(3, {{2, 1}, {5, 1}, {6, 1}}), 4, 1),
              ElementsAre(Turn{0, 2, 3}, Turn{2, 4, 2}));
}

TEST(TurnReturns, ASegmentBeginsATurn) {
  EXPECT_THAT(TurnReturns(Scored(1, {}), 9, 0.5, {0, 3, 5}),
              ElementsAre(Turn{0, 3, 0.25}, Turn{3, 5, 0.5}, Turn{5, 9, 1}));
  EXPECT_THAT(TurnReturns(Scored(3, {{3, 1}, {7, 2}}), 9, 1, {0, 3, 5}),
              ElementsAre(Turn{0, 3, 3}, Turn{3, 5, 2}, Turn{5, 7, 2}, Turn{7, 9, 0}))
      << "a turn that ends where a segment begins is not divided";
}

}  // namespace
}  // namespace freshet
