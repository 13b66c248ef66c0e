#include "rollout/worker/episode_budget.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(ReachedLimit, NamesTheFirstOfThem) {
  EpisodeLimits limits;
  limits.max_turns = 2;
  limits.max_episode_tokens = 10;
  limits.max_cost = 0.5;
  limits.max_time = absl::Seconds(1);
  EXPECT_EQ(ReachedLimit({1, 9, 0.4, absl::Milliseconds(999)}, limits), std::nullopt);
  EXPECT_EQ(ReachedLimit({1, 10, 0.4, absl::ZeroDuration()}, limits), EpisodeLimit::kEpisodeTokens);
  EXPECT_EQ(ReachedLimit({1, 10, 0.5, absl::ZeroDuration()}, limits), EpisodeLimit::kCost);
  EXPECT_EQ(ReachedLimit({1, 10, 0.5, absl::Seconds(1)}, limits), EpisodeLimit::kTime);
  EXPECT_EQ(ReachedLimit({2, 10, 0.5, absl::Seconds(1)}, limits), EpisodeLimit::kTurns);
  EXPECT_EQ(ReachedLimit({1, 1 << 30, 1e9, absl::Hours(1)}, EpisodeLimits()), std::nullopt);
}

}  // namespace
}  // namespace freshet
