#include "rollout/service/pull_timer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kWithout = absl::Seconds(1);
constexpr absl::Duration kBehind = absl::Seconds(30);
const absl::Time kBegin = absl::FromUnixSeconds(1000);

class PullTimerTest : public testing::Test {
 protected:
  PullDecision Look(std::optional<PolicyVersion> held, PolicyVersion published, double seconds) {
    return timer_.Look(held, published, kBegin + absl::Seconds(seconds));
  }
  PullTimer timer_{kWithout, kBehind, kBegin};
};

TEST_F(PullTimerTest, WithoutWeightsItAsksForAnyOncePerPatience) {
  EXPECT_FALSE(Look({}, {0, 0}, 0.9).pull);
  const PullDecision decision = Look({}, {0, 7}, 1);
  EXPECT_TRUE(decision.pull);
  EXPECT_EQ(decision.at_least, (PolicyVersion{0, 0}));
  EXPECT_EQ(decision.reason, "no weights yet");
  EXPECT_FALSE(Look({}, {0, 7}, 1.9).pull);
  EXPECT_TRUE(Look({}, {0, 7}, 2).pull);
}

TEST_F(PullTimerTest, WithTheNewestVersionItNeverAsks) {
  for (int second = 0; second < 1000; ++second) {
    const PullDecision decision = Look(PolicyVersion{0, 3}, {0, 3}, second);
    ASSERT_FALSE(decision.pull) << second;
    ASSERT_EQ(decision.reason, "version 3 is the newest known");
  }
}

TEST_F(PullTimerTest, BehindForLongerThanAPublicationTakesItAsksForWhatIsOut) {
  EXPECT_FALSE(Look(PolicyVersion{0, 3}, {0, 3}, 5).pull);
  EXPECT_FALSE(Look(PolicyVersion{0, 3}, {0, 4}, 6).pull);
  EXPECT_FALSE(Look(PolicyVersion{0, 3}, {0, 5}, 35).pull);
  const PullDecision decision = Look(PolicyVersion{0, 3}, {0, 6}, 36);
  EXPECT_TRUE(decision.pull);
  EXPECT_EQ(decision.at_least, (PolicyVersion{0, 6}));
  EXPECT_THAT(decision.reason, HasSubstr("version 6 of lineage 0 is out, version 3"));
  EXPECT_FALSE(Look(PolicyVersion{0, 3}, {0, 6}, 65).pull);
  EXPECT_TRUE(Look(PolicyVersion{0, 3}, {0, 6}, 66).pull);
}

TEST_F(PullTimerTest, AnyPublicationThatArrivesBeginsItsPatienceAnew) {
  Look(PolicyVersion{0, 3}, {0, 4}, 0);
  EXPECT_FALSE(Look(PolicyVersion{0, 4}, {0, 6}, 29).pull);
  EXPECT_FALSE(Look(PolicyVersion{0, 4}, {0, 6}, 58).pull);
  EXPECT_TRUE(Look(PolicyVersion{0, 4}, {0, 6}, 59).pull);
}

TEST_F(PullTimerTest, AVersionOfAnOlderLineageIsBehind) {
  Look(PolicyVersion{0, 9}, {1, 4}, 0);
  const PullDecision decision = Look(PolicyVersion{0, 9}, {1, 4}, 30);
  EXPECT_TRUE(decision.pull);
  EXPECT_EQ(decision.at_least, (PolicyVersion{1, 4}));
}

}  // namespace
}  // namespace freshet
