#include "controller/jobs/plan/rollout_tally.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

cluster::v1::RolloutTotals Totals(int64_t tokens, double idle, double swap) {
  cluster::v1::RolloutTotals totals;
  totals.set_tokens_generated(tokens);
  totals.set_idle_seconds(idle);
  totals.set_swap_seconds(swap);
  return totals;
}

TEST(RolloutTally, AddsUpWhatAllRolloutsSay) {
  RolloutTally tally;
  tally.Take("j/rollout/1", Totals(100, 1.5, 0.25));
  tally.Take("j/rollout/2", Totals(50, 0.5, 0));
  tally.Take("j/rollout/1", Totals(130, 2.0, 0.25));
  EXPECT_EQ(tally.sum().tokens_generated(), 180);
  EXPECT_EQ(tally.sum().idle_seconds(), 2.5);
  EXPECT_EQ(tally.sum().swap_seconds(), 0.25);
}

TEST(RolloutTally, TheSameStatusCountsOnce) {
  RolloutTally tally;
  for (int i = 0; i < 3; ++i) tally.Take("j/rollout/1", Totals(100, 1, 1));
  EXPECT_EQ(tally.sum().tokens_generated(), 100);
}

TEST(RolloutTally, WhatALostRolloutDidStays) {
  RolloutTally tally;
  tally.Take("j/rollout/1", Totals(100, 1, 1));
  tally.Forget("j/rollout/1");
  EXPECT_TRUE(tally.known().empty());
  tally.Take("j/rollout/2", Totals(7, 0, 0));
  EXPECT_EQ(tally.sum().tokens_generated(), 107);
}

}  // namespace
}  // namespace freshet
