#include "trainer/checkpoint/checkpoint_retention.h"

#include <initializer_list>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<HeldCheckpoint> Held(std::initializer_list<HeldCheckpoint> newest_first) {
  return newest_first;
}

TEST(CheckpointRetentionTest, KeepsTheNewestThePinnedAndTheMultiples) {
  const auto held = Held({{70, {}}, {60, {}}, {50, {}}, {40, {}}, {20, {}}, {0, {}}});
  EXPECT_THAT(VersionsToKeep(held, {.last = 2}), ElementsAre(60, 70));
  EXPECT_THAT(VersionsToKeep(held, {.last = 1, .pinned = {0, 50}}), ElementsAre(0, 50, 70));
  EXPECT_THAT(VersionsToKeep(held, {.last = 1, .every = 20}), ElementsAre(20, 40, 60, 70));
  EXPECT_THAT(VersionsToKeep({}, {.best = 3}), IsEmpty());
}

TEST(CheckpointRetentionTest, KeepsTheBest) {
  const auto held = Held({{60, 0.5}, {50, 0.7}, {40, 0.9}, {30, 0.7}, {20, {}}, {10, 0.8}});
  EXPECT_THAT(VersionsToKeep(held, {.last = 1, .best = 1}), ElementsAre(40, 60));
  EXPECT_THAT(VersionsToKeep(held, {.last = 1, .best = 3}), ElementsAre(10, 40, 50, 60))
      << "of two equal ones the newer";
  EXPECT_THAT(VersionsToKeep(held, {.last = 1, .best = 100}), ElementsAre(10, 30, 40, 50, 60));
}

TEST(CheckpointRetentionTest, WaitsForScoresThatMayStillCome) {
  const auto held = Held({{60, {}}, {55, {}}, {50, {}}, {40, 0.2}, {30, {}}, {20, 0.3}});
  const CheckpointRetention rule{.last = 1, .best = 1, .evaluate_every = 10};
  EXPECT_THAT(VersionsToKeep(held, rule), ElementsAre(20, 50, 60))
      << "55 is not evaluated, and for 30 it is too late";
  std::vector<HeldCheckpoint> none;
  for (int64_t version = 100; version > 0; version -= 10) none.push_back({version, {}});
  EXPECT_THAT(VersionsToKeep(none, rule), ElementsAre(70, 80, 90, 100)) << "a bounded number";
}

}  // namespace
}  // namespace freshet
