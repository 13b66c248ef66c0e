#include "trainer/loss/advantage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/str_cat.h"

namespace freshet {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Groups = std::vector<std::vector<double>>;

Groups Advantages(AdvantageKind kind, const Groups& rewards, double epsilon = 0) {
  auto advantages = ComputeAdvantages(kind, rewards, epsilon);
  EXPECT_TRUE(advantages.ok()) << advantages.status();
  return advantages.ok() ? *std::move(advantages) : Groups{};
}

auto Near(double value) { return DoubleNear(value, 1e-12); }

// Common case: {1, 0, 0, 3} has mean 1, differences 0, -1, -1, 2 and squares 0 + 1 + 1 + 4 = 6.

TEST(Advantage, GrpoDividesByTheSampleDeviation) {
  const double deviation = std::sqrt(6.0 / 3.0);
  EXPECT_THAT(
      Advantages(AdvantageKind::kGrpo, {{1, 0, 0, 3}})[0],
      ElementsAre(Near(0), Near(-1 / deviation), Near(-1 / deviation), Near(2 / deviation)));
}

TEST(Advantage, GrpoAddsEpsilonToTheDeviation) {
  // {1, 3}: differences -1, 1; deviation sqrt(2 / 1)
  EXPECT_THAT(Advantages(AdvantageKind::kGrpo, {{1, 3}}, 0.5)[0],
              ElementsAre(Near(-1 / (std::sqrt(2.0) + 0.5)), Near(1 / (std::sqrt(2.0) + 0.5))));
}

TEST(Advantage, DrGrpoOnlyCenters) {
  EXPECT_THAT(Advantages(AdvantageKind::kDrGrpo, {{1, 0, 0, 3}})[0],
              ElementsAre(Near(0), Near(-1), Near(-1), Near(2)));
}

TEST(Advantage, RlooComparesWithTheOthers) {
  // 1 - 3/3, 0 - 4/3, 0 - 4/3, 3 - 1/3
  EXPECT_THAT(Advantages(AdvantageKind::kRloo, {{1, 0, 0, 3}})[0],
              ElementsAre(Near(0), Near(-4.0 / 3), Near(-4.0 / 3), Near(8.0 / 3)));
}

TEST(Advantage, ReinforcePpNormalisesOverTheBatch) {
  // {0, 0 | 2, 2}: mean 1, squares 4, deviation sqrt(4 / 3)
  const double unit = 1 / std::sqrt(4.0 / 3.0);
  const Groups advantages = Advantages(AdvantageKind::kReinforcePp, {{0, 0}, {2, 2}});
  EXPECT_THAT(advantages[0], ElementsAre(Near(-unit), Near(-unit)));
  EXPECT_THAT(advantages[1], ElementsAre(Near(unit), Near(unit)));
}

TEST(Advantage, ReinforcePpTakesGroupsOfOne) {
  const double unit = 1 / std::sqrt(2.0);  // {0 | 2}: differences -1, 1
  const Groups advantages = Advantages(AdvantageKind::kReinforcePp, {{0}, {2}});
  EXPECT_THAT(advantages[0], ElementsAre(Near(-unit)));
  EXPECT_THAT(advantages[1], ElementsAre(Near(unit)));
}

TEST(Advantage, ReinforcePpBaselineCentersInTheGroupAndScalesOverTheBatch) {
  // {0, 2 | 5, 5 }: differences -1, 1 | 0, 0; squares 2, deviation sqrt(2 / 3)
  const double unit = 1 / std::sqrt(2.0 / 3.0);
  const Groups advantages = Advantages(AdvantageKind::kReinforcePpBaseline, {{0, 2}, {5, 5}});
  EXPECT_THAT(advantages[0], ElementsAre(Near(-unit), Near(unit)));
  EXPECT_THAT(advantages[1], ElementsAre(0.0, 0.0));
}

TEST(Advantage, GroupsAreIndependent) {
  const Groups both = Advantages(AdvantageKind::kGrpo, {{1, 0, 0, 3}, {7, 9, 10}});
  EXPECT_EQ(both[0], Advantages(AdvantageKind::kGrpo, {{1, 0, 0, 3}})[0]);
  EXPECT_EQ(both[1], Advantages(AdvantageKind::kGrpo, {{7, 9, 10}})[0]);
}

TEST(Advantage, IsExactlyZeroWhenRewardsDoNotVary) {
  // 0.1 + 0.2 != 0.3 in binary: the difference is a rounding error and must be ignored.
  for (const std::vector<double>& group :
       {std::vector<double>{0.1, 0.1, 0.1}, std::vector<double>{0, 0, 0},
        std::vector<double>{0.1 + 0.2, 0.3, 0.3}, std::vector<double>{-1e29, -1e29, -1e29}}) {
    for (const AdvantageKind kind :
         {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo, AdvantageKind::kRloo,
          AdvantageKind::kReinforcePp, AdvantageKind::kReinforcePpBaseline}) {
      EXPECT_THAT(Advantages(kind, {group})[0], ElementsAre(0.0, 0.0, 0.0));
    }
  }
}

TEST(Advantage, StaysFiniteAtTheLargestReward) {
  const Groups advantages = Advantages(AdvantageKind::kGrpo, {{1e30, -1e30}});
  EXPECT_THAT(advantages[0], ElementsAre(Near(std::sqrt(0.5)), Near(-std::sqrt(0.5))));
}

TEST(Advantage, RefusesRewardsThatAreNotNumbers) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1e31}) {
    const absl::Status status =
        ComputeAdvantages(AdvantageKind::kGrpo, {{0, 1}, {0, bad}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("reward of sample 1 of group 1"));
  }
}

using TurnGroups = std::vector<std::vector<std::vector<double>>>;

TurnGroups TurnAdvantages(AdvantageKind kind, const TurnGroups& values) {
  auto advantages = ComputeTurnAdvantages(kind, values, /*epsilon=*/0);
  EXPECT_TRUE(advantages.ok()) << advantages.status();
  return *std::move(advantages);
}

TEST(TurnAdvantage, ATurnIsComparedWithTheSameTurnOfTheOthers) {
  EXPECT_EQ(TurnAdvantages(AdvantageKind::kDrGrpo, {{{3, 1, 7}, {1, 2}, {2}}}),
            (TurnGroups{{{1, -0.5, 0}, {-1, 0.5}, {0}}}));
  EXPECT_EQ(TurnAdvantages(AdvantageKind::kRloo, {{{3, 1, 7}, {1, 2}, {2}}}),
            (TurnGroups{{{1.5, -1, 0}, {-1.5, 1}, {0}}}));
}

TEST(TurnAdvantage, TheDeviationIsOverAllTurns) {
  const auto group = TurnAdvantages(AdvantageKind::kGrpo, {{{3, 2}, {1, 2}}})[0];
  const double unit = 1 / std::sqrt(2.0 / 3);  // -1, 1, 0, 0: squares 2
  EXPECT_THAT(group[0], ElementsAre(Near(unit), 0.0));
  EXPECT_THAT(group[1], ElementsAre(Near(-unit), 0.0));
}

TEST(TurnAdvantage, ReinforcePpComparesTheTurnsOfTheBatch) {
  const auto advantages = TurnAdvantages(AdvantageKind::kReinforcePp, {{{1, 5}}, {{3, 5}}});
  const double unit = 1 / std::sqrt(2.0 / 3);
  EXPECT_THAT(advantages[0][0], ElementsAre(Near(-unit), 0.0));
  EXPECT_THAT(advantages[1][0], ElementsAre(Near(unit), 0.0));
}

TEST(TurnAdvantage, EqualsThatOfSamplesWithOneTurn) {
  for (const AdvantageKind kind :
       {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo, AdvantageKind::kRloo,
        AdvantageKind::kReinforcePp, AdvantageKind::kReinforcePpBaseline}) {
    const Groups samples = Advantages(kind, {{1, 0, 0, 3}, {7, 9, 10, 9}});
    const auto turns = TurnAdvantages(kind, {{{1}, {0}, {0}, {3}}, {{7}, {9}, {10}, {9}}});
    for (size_t g = 0; g < samples.size(); ++g) {
      for (size_t s = 0; s < samples[g].size(); ++s) {
        EXPECT_THAT(turns[g][s], ElementsAre(samples[g][s]));
      }
    }
  }
}

TEST(TurnAdvantage, RefusesWhatSamplesMayNotBe) {
  EXPECT_FALSE(ComputeTurnAdvantages(AdvantageKind::kGrpo, {{{1}, {}}}).ok());
  EXPECT_FALSE(ComputeTurnAdvantages(AdvantageKind::kGrpo, {{{1}, {1, 1e31}}}).ok());
  EXPECT_FALSE(ComputeTurnAdvantages(AdvantageKind::kGrpo, {{{1, 2}}}).ok());
  EXPECT_FALSE(ComputeTurnAdvantages(AdvantageKind::kGrpo, {}).ok());
}

TEST(Advantage, RefusesSetsTooSmallToCompare) {
  for (const AdvantageKind kind : {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo,
                                   AdvantageKind::kRloo, AdvantageKind::kReinforcePpBaseline}) {
    EXPECT_FALSE(ComputeAdvantages(kind, {{1, 2}, {1}}).ok());
  }
  EXPECT_FALSE(ComputeAdvantages(AdvantageKind::kReinforcePp, {{1}}).ok());
  EXPECT_FALSE(ComputeAdvantages(AdvantageKind::kReinforcePp, {{1}, {}}).ok());
  EXPECT_FALSE(ComputeAdvantages(AdvantageKind::kGrpo, {}).ok());
}

}  // namespace
}  // namespace freshet
