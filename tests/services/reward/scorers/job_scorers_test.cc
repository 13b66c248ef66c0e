#include "services/reward/scorers/job_scorers.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

std::shared_ptr<const CompositeScorer> Scorer() {
  return std::make_shared<const CompositeScorer>();
}

TEST(JobScorers, FindsTheScorersOfAJobWhileTheyAreRegistered) {
  JobScorers scorers;
  EXPECT_FALSE(scorers.Find("a").has_value());
  const auto mine = Scorer();
  auto registration = scorers.Add("a", absl::Seconds(3), mine);
  const auto found = scorers.Find("a");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->scorer, mine);
  EXPECT_EQ(found->timeout, absl::Seconds(3));
  EXPECT_FALSE(scorers.Find("b").has_value());
  registration.reset();
  EXPECT_FALSE(scorers.Find("a").has_value());
}

TEST(JobScorers, ANewerWorkOnTheSameJobTakesOver) {
  JobScorers scorers;
  auto former = scorers.Add("a", absl::Seconds(1), Scorer());
  const std::string rule = scorers.Find("a")->rule;
  const auto newer = scorers.Add("a", absl::Seconds(2), Scorer());
  EXPECT_EQ(scorers.Find("a")->timeout, absl::Seconds(2));
  EXPECT_NE(scorers.Find("a")->rule, rule);  // its cached scores are not reused
  former.reset();
  EXPECT_EQ(scorers.Find("a")->timeout, absl::Seconds(2));
}

}  // namespace
}  // namespace freshet
