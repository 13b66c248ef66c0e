// The pool follows the decision under different load shapes, in simulated time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/autoscale/pool_simulation.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

using testing::IsEmpty;

constexpr double kHalfHour = 1800;
// The longer of 15 s and two steps of up to 8 s, plus rounding to the 1 s decision period.
constexpr double kWindow = 18;
// Largest delay added by the simulated autoscaler.
constexpr double kActuator = 15;

// One seed is enough for a sanitizer.
std::vector<uint64_t> Seeds() {
  return kHistoryDivisor == 1 ? std::vector<uint64_t>{1, 2, 3} : std::vector<uint64_t>{1};
}

// Load shapes that are skipped under a sanitizer. PoolScaling runs the same code.
class PoolShapes : public testing::Test {
  void SetUp() override {
    if (kHistoryDivisor > 1) GTEST_SKIP() << "slow under a sanitizer";
  }
};

std::string Told(const PoolSimulationResult& result) {
  std::string text;
  for (const auto& change : result.changes) {
    text += StrCat(" ", static_cast<int64_t>(change.time), "s:", change.wanted, "(",
                   Name(change.reason), ")");
  }
  return StrCat(text, "; at last ", Name(result.last_reason), ": ", result.last_text,
                "; late wait ", result.late_wait, " busy ", result.late_busy, " steps ",
                result.steps);
}

// Bounds on the time to settle, as stated in pool_decision.h.
double TimeOut(double first, double last, double start_seconds) {
  return (std::log2(last / first) + 1) * (4 * kWindow + start_seconds + kActuator);
}
double TimeIn(double first, double last) {
  return (std::log2(first / last) + 1) * (120 + 2 * kWindow + kActuator);
}

TEST(PoolScaling, GrowsToWhatTheTrainerTakesAndStaysThere) {
  // An engine makes 4 groups in about 3.5 s; the trainer consumes 4 per second. Needs 3.5 engines,
  // or 4.4 at 80 % load.
  PoolSimulationOptions options;
  for (const uint64_t seed : Seeds()) {
    options.seed = seed;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    EXPECT_GE(result.wanted(), 4) << Told(result);
    EXPECT_LE(result.wanted(), 7) << Told(result);
    EXPECT_THAT(result.Turns(), IsEmpty()) << Told(result);
    EXPECT_LE(result.settled(), TimeOut(1, result.wanted(), options.start_seconds)) << Told(result);
    EXPECT_LT(result.late_wait, 0.1) << Told(result);
  }
}

TEST_F(PoolShapes, ShrinksToWhatTheTrainerTakesAndStaysThere) {
  PoolSimulationOptions options;
  options.engines = 16;
  for (const uint64_t seed : {1, 2, 3}) {
    options.seed = seed;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    EXPECT_GE(result.wanted(), 4) << Told(result);
    EXPECT_LE(result.wanted(), 8) << Told(result);
    EXPECT_THAT(result.Turns(), IsEmpty()) << Told(result);
    EXPECT_LE(result.settled(), TimeIn(16, result.wanted())) << Told(result);
    EXPECT_LT(result.late_wait, 0.1) << Told(result);
  }
}

TEST_F(PoolShapes, ManyEnginesAreReachedByDoubling) {
  PoolSimulationOptions options;
  options.groups_per_step = 32;
  options.bounds = {1, 64};
  options.sample_seconds = [](double, Dice& dice) { return dice.Uniform(3, 5); };
  // 16 groups per second at 0.87 engine-seconds each: 18 engines, or 23 at 80 % load.
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_GE(result.wanted(), 18) << Told(result);
  EXPECT_LE(result.wanted(), 32) << Told(result);
  EXPECT_THAT(result.Turns(), IsEmpty()) << Told(result);
  // With one engine a step takes 37 s, so the first window is 74 s. It halves with each doubling.
  EXPECT_LE(result.settled(), 3 * 75 * 2 + TimeOut(1, result.wanted(), options.start_seconds))
      << Told(result);
}

TEST_F(PoolShapes, WithoutStalenessBothSidesTakeTurns) {
  PoolSimulationOptions options;
  options.eta = 0;
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_LE(result.MostTurnsWithin(kHalfHour), 4) << Told(result);
  EXPECT_LT(result.Most(), 16) << Told(result);
}

TEST_F(PoolShapes, BurstsDoNotMakeItFlap) {
  // Responses are 2.5 times as long for 80 s every 6 minutes.
  PoolSimulationOptions options;
  options.seconds = 2 * 3600;
  options.engines = 5;
  options.sample_seconds = [](double now, Dice& dice) {
    return dice.Uniform(2, 4) * (std::fmod(now, 360) < 80 ? 2.5 : 1);
  };
  for (const uint64_t seed : {1, 2, 3}) {
    options.seed = seed;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    EXPECT_LE(result.MostTurnsWithin(kHalfHour), 4) << Told(result);
    EXPECT_GE(result.wanted(), 4) << Told(result);
  }
}

TEST_F(PoolShapes, ALoadThatRisesForGoodIsFollowed) {
  // Responses grow over time, to twice their length after half an hour.
  PoolSimulationOptions options;
  options.seconds = 2 * 3600;
  options.engines = 5;
  options.sample_seconds = [](double now, Dice& dice) {
    return dice.Uniform(2, 4) * (now < kHalfHour ? 1 : 2);
  };
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_GE(result.wanted(), 7) << Told(result);
  EXPECT_LE(result.wanted(), 14) << Told(result);
  EXPECT_LE(result.Turns().size(), 1U) << Told(result);
  EXPECT_LE(result.settled(), kHalfHour + TimeOut(5, result.wanted(), 20) + 60) << Told(result);
  EXPECT_LT(result.late_wait, 0.1) << Told(result);
}

TEST_F(PoolShapes, LongTailsDoNotRunAway) {
  // With log-normal lengths the longest of a step's 16 samples decides the step time, which more
  // engines cannot reduce.
  PoolSimulationOptions options;
  options.seconds = 2 * 3600;
  options.bounds = {1, 64};
  options.sample_seconds = [](double, Dice& dice) {
    const double u = std::max(dice.Uniform(), 1e-9);
    const double v = dice.Uniform();
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(6.283185307 * v);
    return std::min(2 * std::exp(1.1 * normal), 60.0);
  };
  for (const int64_t eta : {0, 2}) {
    options.eta = eta;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    EXPECT_LE(result.MostTurnsWithin(kHalfHour), 4) << Told(result);
    EXPECT_LT(result.Most(), 32) << Told(result);
    EXPECT_LT(result.wanted(), 24) << Told(result);
  }
}

TEST(PoolScaling, EnginesThatTheBoundCannotFeedAreTakenBack) {
  // At eta = 1, the 16 groups that may be outstanding occupy 4 engines. The trainer still waits.
  PoolSimulationOptions options;
  options.eta = 1;
  options.bounds = {1, 64};
  options.sample_seconds = [](double, Dice& dice) { return dice.Uniform(4, 8); };
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_GT(result.late_wait, 0.1) << "no number of engines would end that; " << Told(result);
  EXPECT_LE(result.wanted(), 12) << Told(result);
  EXPECT_LE(result.MostTurnsWithin(kHalfHour), 4) << Told(result);
}

TEST_F(PoolShapes, DyingEnginesDoNotShrinkThePool) {
  PoolSimulationOptions options;
  options.engines = 5;
  options.dies_every = 20;
  for (const uint64_t seed : {1, 2, 3}) {
    options.seed = seed;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    for (const auto& change : result.changes) EXPECT_GE(change.wanted, 4) << Told(result);
    EXPECT_LE(result.Most(), 12) << Told(result);
    EXPECT_LE(result.MostTurnsWithin(kHalfHour), 2) << Told(result);
    EXPECT_GT(result.late_steps, 225) << "half of the trainer's pace; " << Told(result);
  }
}

TEST_F(PoolShapes, ARestartOfTheTrainerChangesNothing) {
  PoolSimulationOptions options;
  options.engines = 5;
  options.trainer_dies_at = 1200;
  options.trainer_away_seconds = 300;
  for (const uint64_t seed : {1, 2, 3}) {
    options.seed = seed;
    const PoolSimulationResult result = SimulatePool(options);
    EXPECT_THAT(result.violations, IsEmpty());
    const auto near = std::find_if(result.changes.begin(), result.changes.end(),
                                   [](const auto& c) { return c.time > 1195 && c.time < 1620; });
    EXPECT_EQ(near, result.changes.end()) << Told(result);
    EXPECT_LE(result.Turns().size(), 1U) << Told(result);
  }
}

TEST(PoolScaling, ATrainerThatStaysAwayFreesTheEngines) {
  PoolSimulationOptions options;
  options.engines = 5;
  options.trainer_dies_at = 1200;
  options.trainer_away_seconds = 100'000;
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_EQ(result.wanted(), 1) << Told(result);
  EXPECT_EQ(result.changes.back().reason, ScalingReason::kTrainerAway);
  EXPECT_NEAR(result.settled(), 1800, 5) << Told(result);
}

TEST_F(PoolShapes, AtItsBoundsItStaysAndSaysSo) {
  PoolSimulationOptions options;
  options.bounds = {1, 2};
  PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_EQ(result.wanted(), 2) << Told(result);
  EXPECT_EQ(result.changes.size(), 2U) << Told(result);
  EXPECT_EQ(result.last_reason, ScalingReason::kAtMaximum) << Told(result);

  options.bounds = {12, 16};
  options.engines = 12;
  result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_EQ(result.changes.size(), 1U) << Told(result);
  EXPECT_EQ(result.last_reason, ScalingReason::kAtMinimum) << Told(result);

  options.bounds = {3, 3};
  options.engines = 3;
  result = SimulatePool(options);
  EXPECT_EQ(result.changes.size(), 1U) << Told(result);
}

TEST_F(PoolShapes, MoreEnginesThanGroupsAreNeverAskedFor) {
  // At most 2 groups may be outstanding, so a third engine would be idle.
  PoolSimulationOptions options;
  options.eta = 0;
  options.groups_per_step = 2;
  options.slots = 1;
  options.step_seconds = 0.2;
  const PoolSimulationResult result = SimulatePool(options);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_LE(result.Most(), 2) << Told(result);
}

TEST(PoolScaling, NoNumberOfEnginesBreaksTheStalenessBound) {
  PoolSimulationOptions options;
  options.seconds = 1200;
  options.start_seconds = 3;
  options.dies_every = 35;
  options.trainer_dies_at = 600;
  options.trainer_away_seconds = 40;
  options.sample_seconds = [](double, Dice& dice) {
    return dice.Uniform(0.5, 4) * (dice.Chance(0.1) ? 10 : 1);
  };
  options.actuate = [](double, Dice& dice) { return static_cast<int32_t>(dice.Below(17)); };
  for (const int64_t eta : {0, 1, 4}) {
    for (const uint64_t seed : Seeds()) {
      options.eta = eta;
      options.seed = seed;
      const PoolSimulationResult result = SimulatePool(options);
      EXPECT_THAT(result.violations, IsEmpty()) << "eta " << eta << " seed " << seed;
      EXPECT_GT(result.steps, 20) << "eta " << eta << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace freshet
