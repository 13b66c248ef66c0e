#ifndef FRESHET_ROLLOUT_WORKER_EPISODE_BUDGET_H_
#define FRESHET_ROLLOUT_WORKER_EPISODE_BUDGET_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/time/time.h"
#include "rollout/sessions/episode_limit.h"

namespace freshet {

// Budgets of an episode.
struct EpisodeLimits {
  int32_t max_turns = 8;
  // Tokens that the policy generates, over all turns and conversations.
  int64_t max_episode_tokens = std::numeric_limits<int64_t>::max();
  // What the environment's answers may cost.
  double max_cost = std::numeric_limits<double>::infinity();
  // The episode is truncated after the first turn that ends later.
  absl::Duration max_time = absl::InfiniteDuration();
};

// What an episode has used of them.
struct EpisodeUse {
  int32_t turns = 0;
  int64_t tokens = 0;
  double cost = 0;
  absl::Duration time;
};

// The first of the limits, in the order of EpisodeLimit, that an episode has reached at the end of
// a turn; absent: none, so that it may go on. Pure.
std::optional<EpisodeLimit> ReachedLimit(const EpisodeUse& use, const EpisodeLimits& limits);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_EPISODE_BUDGET_H_
