#include "rollout/worker/episode_budget.h"

namespace freshet {

std::optional<EpisodeLimit> ReachedLimit(const EpisodeUse& use, const EpisodeLimits& limits) {
  if (use.turns >= limits.max_turns) return EpisodeLimit::kTurns;
  if (use.time >= limits.max_time) return EpisodeLimit::kTime;
  if (use.cost >= limits.max_cost) return EpisodeLimit::kCost;
  if (use.tokens >= limits.max_episode_tokens) return EpisodeLimit::kEpisodeTokens;
  return std::nullopt;
}

}  // namespace freshet
