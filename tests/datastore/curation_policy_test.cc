// Decisions about completed groups: filters by reward, and the success pool.
#include "datastore/curation_policy.h"

#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(CurationPolicy, FiltersByTheFirstRuleThatApplies) {
  const RewardFilter all{true, 0.2, 0.8};
  EXPECT_EQ(DecideFilter(all, {0, 0}), "too_hard");
  EXPECT_EQ(DecideFilter(all, {1, 1}), "too_easy");
  EXPECT_EQ(DecideFilter(all, {0.5, 0.5}), "zero_variance");
  EXPECT_EQ(DecideFilter(all, {0, 1}), "");
  EXPECT_EQ(DecideFilter({true, {}, {}}, {0, 0}), "zero_variance");
  EXPECT_EQ(DecideFilter({}, {0, 0}), "");
}

TEST(CurationPolicy, BoundsOfTheMeanAreInclusive) {
  EXPECT_EQ(DecideFilter({false, 0.5, 0.5}, {0, 1}), "");
  EXPECT_EQ(DecideFilter({false, 0.5, {}}, {0, 0.999}), "too_hard");
  EXPECT_EQ(DecideFilter({false, {}, 0.5}, {0, 1.001}), "too_easy");
}

TEST(CurationPolicy, KeepsTheBestOfFewSuccesses) {
  const ReplayOptions replay{4, 1.0, 8, 2};
  const ReplayDecision one = DecideReplay(replay, {0, 1, 0});
  EXPECT_EQ(one.keep, std::optional<int32_t>(1));
  EXPECT_EQ(one.replace, std::nullopt);
  EXPECT_EQ(DecideReplay(replay, {0, 2, 2}).keep, std::optional<int32_t>(1)) << "the first";
  const ReplayDecision many = DecideReplay(replay, {1, 1, 1});
  EXPECT_EQ(many.keep, std::nullopt);
  EXPECT_EQ(many.replace, std::nullopt);
}

TEST(CurationPolicy, ReplacesTheWorstSampleOfAGroupWithoutSuccess) {
  const ReplayOptions replay{4, 1.0, 8, 1};
  EXPECT_EQ(DecideReplay(replay, {0.5, -1, -1, 0.9}).replace, std::optional<int32_t>(2))
      << "the last";
  EXPECT_EQ(DecideReplay(replay, {0.5, -1, -1, 1.0}).replace, std::nullopt);
}

TEST(CurationPolicy, ASuccessMustBeYoungEnoughForTheLastStepThatMayTrainTheGroup) {
  StalenessOptions staleness;
  staleness.max = 2;
  const ReplayOptions replay{5, 1.0, 8, 1};
  const GroupAge group{0, 10, 11, true};  // trained by a step from version 12 at the latest
  EXPECT_TRUE(MayReplay(staleness, replay, group, 7));
  EXPECT_FALSE(MayReplay(staleness, replay, group, 6));
  staleness.disposition = Disposition::kMask;  // from version 13 at the latest
  EXPECT_TRUE(MayReplay(staleness, replay, group, 8));
  EXPECT_FALSE(MayReplay(staleness, replay, group, 7));
}

TEST(CurationPolicy, APausedJobNamesHowManyGroupsWereFilteredForEachReason) {
  EXPECT_EQ(
      FilteredCounts(
          {{"dropped(too_old)", 4}, {"filtered(too_easy)", 2}, {"filtered(zero_variance)", 38}}),
      " (in the whole job: too_easy 2, zero_variance 38); look at the samples, then change the "
      "dataset, the reward or filter");
}

TEST(CurationPolicy, OptionsHaveBounds) {
  EXPECT_TRUE((ReplayOptions{2, -1.5, 1, 1}).Validate().ok());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const ReplayOptions& bad :
       {ReplayOptions{0, 1, 1, 1}, ReplayOptions{1, infinity, 1, 1}, ReplayOptions{1, 1, 0, 1},
        ReplayOptions{1, 1, 1, 0}, ReplayOptions{1, 1, int64_t{1} << 40, 1}}) {
    EXPECT_EQ(bad.Validate().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace freshet
