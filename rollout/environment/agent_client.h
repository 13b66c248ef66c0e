#ifndef FRESHET_ROLLOUT_ENVIRONMENT_AGENT_CLIENT_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_AGENT_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

// What an agent is given for an episode.
struct AgentTask {
  std::string base_url;                    // of OpenAI's API
  std::string api_key;                     // of the episode's session
  std::string model;                       // the name in its requests
  uint64_t seed = 0;                       // the same for all samples of a prompt
  std::map<std::string, std::string> row;  // fields of the dataset's row; `prompt` is among them
  std::map<std::string, std::string> options;  // of the job
  bool chat = false;                           // row["prompt"] is JSON: {"messages", "tools"}
  std::string sample = {};                     // its uid; "": none
  absl::Duration timeout;                      // of the whole episode
};

// How an agent ended an episode.
struct AgentReward {
  double reward = 0;
  bool truncated = false;
  // The episode counts even if none of its requests was answered.
  bool requests_optional = false;
};

struct AgentEvent {
  int64_t episode = 0;
  absl::StatusOr<AgentReward> reward = AgentReward{};
};

// Calls of an agent, each of which plays one episode: the agent sends its requests to the given
// endpoint and answers the call with the reward. Each Start is answered by exactly one event,
// unless Stop comes first. Errors:
//   INVALID_ARGUMENT: the agent refuses the task (HTTP 4xx); do not retry.
//   RESOURCE_EXHAUSTED: the agent is full (HTTP 429); retry later.
//   DEADLINE_EXCEEDED, UNAVAILABLE, any other: the agent is slow, gone or broken.
// Not thread-safe.
class AgentClient {
 public:
  virtual ~AgentClient() = default;

  // The id must never have been used before.
  virtual void Start(int64_t episode, const AgentTask& task) = 0;
  // Breaks the call off. Idempotent.
  virtual void Stop(int64_t episode) = 0;
  // Returns the events since the last call. Does not block.
  virtual std::vector<AgentEvent> Poll() = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_AGENT_CLIENT_H_
