#include "controller/jobs/plan/call_limits.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(CallLimits, AJobEndsWhenACallBeyondTheLimitWasNeeded) {
  job::v1::Reward reward;
  (*reward.mutable_components())["judge"].set_max_calls(5000);
  (*reward.mutable_components())["free"].set_type("judge");
  EXPECT_EQ(FindCallsUsedUp(reward, {}), "");
  // Perhaps the last call was the last one that the job needs.
  EXPECT_EQ(FindCallsUsedUp(reward, {{"judge", 5000, 0}}), "");
  EXPECT_EQ(FindCallsUsedUp(reward, {{"judge", 5000, 5000}}),
            "reward.components.judge.max_calls: all 5000 calls are used; raise it and resume");
  EXPECT_EQ(FindCallsUsedUp(reward, {{"judge", 4999, 4999}}), "") << "it was raised since";
  EXPECT_EQ(FindCallsUsedUp(reward, {{"free", 9, 9}, {"gone", 9, 9}}), "");
}

}  // namespace
}  // namespace freshet
