#ifndef FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

// Initial state of an episode. The same start and actions give the same answers on any worker.
struct EpisodeStart {
  std::string environment;
  uint64_t seed = 0;
  std::map<std::string, std::string> options;
  std::string traceparent = {};  // of the sample (W3C trace context); "": none
};

// As in EpisodeReply (env_service.proto).
struct EpisodeMessage {
  std::string role;
  std::string content;
  std::string name = {};
  std::string tool_call_id = {};
};

// An environment's answer to a reset or step.
struct EpisodeAnswer {
  std::string observation;
  double reward = 0;
  bool terminated = false;
  bool truncated = false;
  std::vector<EpisodeMessage> messages = {};  // instead of an observation
  // Of a reset or a new context: function schemas as JSON.
  std::vector<std::string> tools = {};
  bool invalid = false;      // the action was invalid
  bool new_context = false;  // the messages replace the conversation
  double cost = 0;           // of this reset or step
};

struct EpisodeEvent {
  int64_t episode = 0;
  absl::StatusOr<EpisodeAnswer> answer = EpisodeAnswer{};
};

// Non-blocking client for episodes on environment workers. Each Reset and Step is answered by
// exactly one event, unless Close comes first. A worker that is lost between two steps is reported
// as the answer to the next one. After an event with an error the episode is closed. Errors:
//   INVALID_ARGUMENT: no worker would accept it (unknown environment, bad option); do not retry.
//   RESOURCE_EXHAUSTED: all workers are full; retry later.
//   DEADLINE_EXCEEDED, UNAVAILABLE, any other: the worker is slow, gone or broken; a new episode
//   goes to another worker if there is one.
// Not thread-safe.
class EnvironmentClient {
 public:
  virtual ~EnvironmentClient() = default;

  // Opens an episode. The id must never have been used before.
  virtual void Reset(int64_t episode, const EpisodeStart& start) = 0;
  // Sends the policy's action. The previous call must have been answered.
  virtual void Step(int64_t episode, std::string action) = 0;
  // Ends the episode in any state. No further event for it is returned. Idempotent.
  virtual void Close(int64_t episode) = 0;

  // Returns the events since the last call. Does not block.
  virtual std::vector<EpisodeEvent> Poll() = 0;
  // Blocks until an event is available, for at most `timeout` of real time.
  virtual void Await(absl::Duration timeout) = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
