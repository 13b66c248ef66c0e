#include "controller/autoscale/pool_decision.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// Feeds signals for one pool to the decision, second by second.
class Pool {
 public:
  explicit Pool(PoolBounds bounds) : bounds_(bounds) {
    signals.time = absl::FromUnixSeconds(1000);
    signals.phase = JobPhase::kTrains;
    signals.job = "a";
    signals.admissible = 1000;
    signals.ready = signals.expected = bounds.min;
  }
  // Repeats the current signals for `seconds`. The trainer needs `step_seconds` per step; 0: no
  // steps.
  const PoolDecision& Run(double seconds, double step_seconds = 2) {
    for (int i = 0; i < static_cast<int>(seconds); ++i) {
      signals.time += absl::Seconds(1);
      if (step_seconds > 0) steps_ += 1 / step_seconds;
      signals.version = static_cast<int64_t>(steps_);
      decision = DecidePool(rules_, bounds_, state_, signals);
      state_ = decision.next;
      if (follows) signals.ready = decision.wanted;
      wanted.push_back(decision.wanted);
    }
    return decision;
  }
  void Load(double trainer_wait, double busy_share) {
    signals.trainer_wait = trainer_wait;
    signals.busy = busy_share * signals.ready;
  }

  PoolSignals signals;
  PoolDecision decision;
  bool follows = true;  // the pool has as many engines as wanted
  std::vector<int32_t> wanted;

 private:
  const PoolBounds bounds_;
  const ScalingRules rules_;
  PoolState state_;
  double steps_ = 0;
};

TEST(PoolDecision, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kNumScalingReasons; ++i) {
    const std::string name = Name(static_cast<ScalingReason>(i));
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '_';
    })) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), size_t{kNumScalingReasons});
  EXPECT_STREQ(Name(ScalingReason::kTrainerAway), "trainer_away");
  EXPECT_STREQ(Name(ScalingReason::kUnknown), "unknown");
  EXPECT_STREQ(Name(ScalingReason::kFixed), "fixed");
}

TEST(PoolDecision, GrowsAfterTwoWindowsThatAskForMore) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(28).wanted, 4);
  // 4 / 0.5 / 0.8 = 10, capped at twice the current number.
  EXPECT_EQ(pool.Run(4).wanted, 8);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kTrainerWaits);
  EXPECT_THAT(pool.decision.text, HasSubstr("the trainer waits 50 % of its time"));
  EXPECT_THAT(pool.decision.text, HasSubstr("4 engines work 100 %"));
}

TEST(PoolDecision, OneWindowIsNotEnough) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Run(1);  // starts the first window
  for (int i = 0; i < 20; ++i) {
    pool.Load(0.5, 1);
    pool.Run(15);
    pool.Load(0, 0.8);
    pool.Run(15);
  }
  EXPECT_EQ(*std::max_element(pool.wanted.begin(), pool.wanted.end()), 4);
}

TEST(PoolDecision, AWindowHoldsTwoSteps) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(230, /*step_seconds=*/60).wanted, 4);
  EXPECT_EQ(pool.Run(20, /*step_seconds=*/60).wanted, 8);
}

TEST(PoolDecision, WithoutAnyStepTheLongestWindowDecides) {
  Pool pool({1, 16});
  pool.Load(1, 1);
  EXPECT_EQ(pool.Run(1190, /*step_seconds=*/0).wanted, 1);
  EXPECT_EQ(pool.Run(20, /*step_seconds=*/0).wanted, 2);
}

TEST(PoolDecision, BusyEnginesAreEnoughWhileTheTrainerDoesNotWait) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.03, 1);
  EXPECT_EQ(pool.Run(600).wanted, 4);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kBalanced);
}

TEST(PoolDecision, ShrinksWhenAllWindowsOfTwoMinutesAskForFewer) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 8;
  pool.Load(0, 0.4);
  EXPECT_EQ(pool.Run(118).wanted, 8);
  // 8 * 0.4 / 0.65 = 4.9.
  EXPECT_EQ(pool.Run(10).wanted, 5);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kEnginesIdle);
}

TEST(PoolDecision, ShrinksToTheMostThatAWindowAskedFor) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 8;
  for (int i = 0; i < 4; ++i) {
    pool.Load(0, 0.2);
    pool.Run(16);
    pool.Load(0, 0.5);
    pool.Run(16);
  }
  pool.Run(16);
  EXPECT_EQ(pool.decision.wanted, 7) << "8 * 0.5 / 0.65";
}

TEST(PoolDecision, AtMostHalfAtATime) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 16;
  pool.Load(0, 0.01);
  EXPECT_EQ(pool.Run(140).wanted, 8);
}

TEST(PoolDecision, WhatWaitsForSomethingElseIsLeftAlone) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 8;
  pool.Load(0.95, 0.02);
  EXPECT_EQ(pool.Run(1200).wanted, 8);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kBothWait);
}

TEST(PoolDecision, StragglersAreNotHelpedByMoreEngines) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 4;
  pool.signals.queue_age = absl::Seconds(10);
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(300).wanted, 4);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kStragglers);
  pool.signals.queue_age = absl::Seconds(1);
  EXPECT_EQ(pool.Run(50).wanted, 8);
}

TEST(PoolDecision, EnginesThatAreMissingAreWaitedFor) {
  Pool pool({1, 16});
  pool.follows = false;
  pool.signals.ready = 2;
  pool.signals.expected = 8;
  pool.Load(0.8, 1);
  EXPECT_EQ(pool.Run(600).wanted, 8);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kEnginesMissing);
  EXPECT_EQ(pool.decision.text, "2.0 of 8 engines were ready");
}

TEST(PoolDecision, ASingleEngineThatIsMissingDoesNotHoldUpTheRest) {
  Pool pool({1, 16});
  pool.follows = false;
  pool.signals.ready = 7;
  pool.signals.expected = 8;
  pool.Load(0.2, 1);
  EXPECT_GT(pool.Run(60).wanted, 8);
}

TEST(PoolDecision, WhileTheLastGrowthCannotBeJudgedItSaysWhatIsMissing) {
  Pool pool({1, 64});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.5, 1);
  ASSERT_EQ(pool.Run(34).wanted, 8);
  pool.follows = false;
  pool.signals.ready = 7;  // 88 %
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(600).wanted, 8);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kEnginesMissing);
  EXPECT_EQ(pool.decision.text, "7.0 of 8 engines were ready: too few to judge the last growth");
  pool.signals.ready = 8;
  pool.Load(0.5, 1);
  pool.Run(100);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kNoGain) << "judged once they are all there";
}

TEST(PoolDecision, TheStalenessBoundLimitsIt) {
  Pool pool({1, 100});
  pool.signals.ready = pool.signals.expected = 4;
  pool.signals.admissible = 6;
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(40).wanted, 6);
  pool.Load(0.3, 1);
  EXPECT_EQ(pool.Run(40).wanted, 6);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kStalenessBound);
  EXPECT_THAT(pool.decision.text, HasSubstr("the bound admits 6 groups"));
}

TEST(PoolDecision, GrowthThatDoesNotHelpIsTakenBackForHalfAnHour) {
  Pool pool({1, 64});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(34).wanted, 8);
  pool.Load(0.5, 1);  // the trainer waits as before
  EXPECT_EQ(pool.Run(40).wanted, 8);
  EXPECT_EQ(pool.Run(10).wanted, 4);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kNoGain);
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(1700).wanted, 4);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kNoGain);
  pool.Run(200);
  EXPECT_EQ(*std::max_element(pool.wanted.end() - 200, pool.wanted.end()), 8) << "tried again";
}

TEST(PoolDecision, GrowthThatHelpsGoesOn) {
  Pool pool({1, 64});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.75, 1);
  pool.Run(34, /*step_seconds=*/4);
  EXPECT_EQ(pool.decision.wanted, 8);
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(40, /*step_seconds=*/2).wanted, 8) << "not known yet";
  EXPECT_EQ(pool.Run(10, /*step_seconds=*/2).wanted, 16);
}

TEST(PoolDecision, WhatHadToGrowAgainDoesNotShrinkForHalfAnHour) {
  Pool pool({1, 16});
  pool.signals.ready = pool.signals.expected = 8;
  pool.Load(0, 0.4);
  EXPECT_EQ(pool.Run(140).wanted, 5);
  pool.Load(0.3, 1);
  const int32_t grown = pool.Run(40).wanted;
  EXPECT_GE(grown, 8);
  pool.Load(0, 0.3);
  EXPECT_EQ(pool.Run(1700).wanted, grown);
  EXPECT_THAT(pool.decision.text, HasSubstr("engines were too few a while ago"));
  EXPECT_LT(pool.Run(300).wanted, grown);
}

TEST(PoolDecision, InThatTimeItDoesNotGrowWithoutRoomBelowTheBoundEither) {
  Pool pool({1, 40});
  pool.signals.ready = pool.signals.expected = 8;
  pool.Load(0, 0.4);
  pool.Run(140);
  pool.Load(0.3, 1);
  const int32_t grown = pool.Run(40).wanted;
  pool.signals.outstanding = pool.signals.admissible;
  pool.Load(0.1, 1);  // the larger pool helped
  EXPECT_EQ(pool.Run(200).wanted, grown);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kStalenessBound);
  pool.signals.outstanding = 0;
  EXPECT_GT(pool.Run(50).wanted, grown);
}

TEST(PoolDecision, OfAnotherJobNothingIsRemembered) {
  Pool pool({1, 64});
  pool.signals.ready = pool.signals.expected = 4;
  pool.Load(0.5, 1);
  pool.Run(34);
  pool.Load(0.5, 1);
  pool.Run(50);
  ASSERT_EQ(pool.decision.reason, ScalingReason::kNoGain);
  pool.signals.job = "b";
  pool.Load(0.5, 1);
  EXPECT_EQ(pool.Run(40).wanted, 8);
}

TEST(PoolDecision, BeginsWithTheEnginesThatThereAre) {
  Pool pool({1, 16});
  pool.signals.expected = 7;
  pool.signals.ready = 0;
  EXPECT_EQ(pool.Run(1).wanted, 7);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kMeasuring);
  Pool above({1, 4});
  above.signals.expected = 7;
  EXPECT_EQ(above.Run(1).wanted, 4);
}

// Phases of a job in which nothing is trained.
class PoolPhase : public testing::Test {
 protected:
  // A pool of 6 after training, then `seconds` in `phase`.
  Pool After(JobPhase phase, double seconds, PoolBounds bounds = {0, 16}) {
    Pool pool(bounds);
    pool.signals.ready = pool.signals.expected = 6;
    pool.Load(0, 0.8);
    pool.Run(20);
    EXPECT_EQ(pool.decision.wanted, 6);
    pool.signals.phase = phase;
    if (phase == JobPhase::kNone || phase == JobPhase::kQueued) pool.signals.job = "";
    pool.Run(seconds);
    return pool;
  }
};

TEST_F(PoolPhase, WithoutAJobTheEnginesGoAfterTwoMinutes) {
  const Pool soon = After(JobPhase::kNone, 110);
  EXPECT_EQ(soon.decision.wanted, 6);
  EXPECT_EQ(soon.decision.reason, ScalingReason::kNoJob);
  EXPECT_EQ(soon.decision.text, "no job; 0 engines in 11s");
  EXPECT_EQ(After(JobPhase::kNone, 125).decision.wanted, 0);
  EXPECT_EQ(After(JobPhase::kNone, 125, {2, 16}).decision.wanted, 2);
}

TEST_F(PoolPhase, AJobThatWaitsNeedsOneEngine) {
  EXPECT_EQ(After(JobPhase::kQueued, 125).decision.wanted, 1);
  Pool pool = After(JobPhase::kNone, 125);
  ASSERT_EQ(pool.decision.wanted, 0);
  pool.signals.phase = JobPhase::kQueued;
  EXPECT_EQ(pool.Run(1).wanted, 1) << "at once";
  EXPECT_EQ(pool.decision.reason, ScalingReason::kJobWaits);
}

TEST_F(PoolPhase, AJobThatStartsEndsOrIsNotKnownKeepsItsEngines) {
  for (const JobPhase phase : {JobPhase::kStarts, JobPhase::kEnds, JobPhase::kUnknown}) {
    EXPECT_EQ(After(phase, 7200).decision.wanted, 6) << static_cast<int>(phase);
  }
}

TEST_F(PoolPhase, APausedJobGivesThemUp) {
  EXPECT_EQ(After(JobPhase::kPaused, 110).decision.wanted, 6);
  const Pool pool = After(JobPhase::kPaused, 125);
  EXPECT_EQ(pool.decision.wanted, 1);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kJobPaused);
}

TEST_F(PoolPhase, ATrainerIsWaitedForTenMinutes) {
  EXPECT_EQ(After(JobPhase::kTrainerAway, 590).decision.wanted, 6);
  EXPECT_EQ(After(JobPhase::kTrainerAway, 605).decision.wanted, 1);
}

TEST_F(PoolPhase, MeasuringBeginsAnewAfterwards) {
  Pool pool = After(JobPhase::kTrainerAway, 30);
  pool.signals.phase = JobPhase::kTrains;
  pool.Run(1);
  EXPECT_EQ(pool.decision.reason, ScalingReason::kMeasuring);
}

// For arbitrary signals, the decision stays within the bounds and turns rarely.
TEST(PoolDecision, WildSignalsNeitherLeaveTheBoundsNorMakeItFlap) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Pool pool({2, 40});
    pool.signals.ready = pool.signals.expected = 10;
    std::vector<int> turns;  // times in seconds
    int direction = 0;
    int32_t before = 10;
    uint64_t draw = 0;
    const auto dice = [&] { return ToUniform(RandomBits(seed, draw++)); };
    for (int second = 0; second < 6 * 3600; ++second) {
      // Keep a load for seconds to minutes.
      if (dice() < 0.01) pool.Load(dice() * dice() * 1.2, dice() * 1.2);
      pool.signals.queue_age = absl::Seconds(dice() * 5);
      pool.Run(1, 0.5 + 5 * dice());
      const int32_t now = pool.decision.wanted;
      ASSERT_GE(now, 2);
      ASSERT_LE(now, 40);
      if (now == before) continue;
      const int next = now > before ? 1 : -1;
      if (direction != 0 && next != direction) turns.push_back(second);
      direction = next;
      before = now;
    }
    for (size_t i = 4; i < turns.size(); ++i) {
      EXPECT_GE(turns[i] - turns[i - 4], 1800) << "seed " << seed << " turn " << i;
    }
  }
}

}  // namespace
}  // namespace freshet
