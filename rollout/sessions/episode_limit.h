#ifndef FRESHET_ROLLOUT_SESSIONS_EPISODE_LIMIT_H_
#define FRESHET_ROLLOUT_SESSIONS_EPISODE_LIMIT_H_

#include <array>

namespace freshet {

// What truncated an episode.
enum class EpisodeLimit {
  kEnvironment,    // the environment or agent says so
  kTurns,          // max_turns
  kTime,           // max_time
  kCost,           // max_cost
  kEpisodeTokens,  // max_episode_tokens
  kTokens,         // a conversation's tokens
  kConversations,  // the number of conversations
};

// Names in metrics, by value.
constexpr std::array<const char*, 7> kEpisodeLimitNames = {
    "environment", "turns", "time", "cost", "episode_tokens", "tokens", "conversations"};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_EPISODE_LIMIT_H_
