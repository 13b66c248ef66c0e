#ifndef FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

// How an episode begins. The same start and the same actions give the same answers, on any worker.
struct EpisodeStart {
  std::string environment;
  uint64_t seed = 0;
  std::map<std::string, std::string> options;
  std::string traceparent = {};  // of the sample (W3C trace context); "": none
};

// What an environment says after a reset or a step.
struct EpisodeAnswer {
  std::string observation;
  double reward = 0;
  bool terminated = false;
  bool truncated = false;
};

struct EpisodeEvent {
  int64_t episode = 0;
  absl::StatusOr<EpisodeAnswer> answer = EpisodeAnswer{};
};

// Episodes on environment workers, as an engine's thread needs them: no call waits for a worker.
// Each Reset and each Step is answered by one event, unless Close comes first, and nothing else is:
// a worker that is lost between two steps is heard of after the next one. After an event with an
// error the episode is closed. Errors:
//   INVALID_ARGUMENT: no worker would take it (unknown environment, bad option); never retry.
//   RESOURCE_EXHAUSTED: all workers are full; retry later.
//   DEADLINE_EXCEEDED, UNAVAILABLE, any other: the worker is slow, gone or broken; a new episode
//   goes to another one where there is one.
// Confined to one thread.
class EnvironmentClient {
 public:
  virtual ~EnvironmentClient() = default;

  // Opens an episode under an id that was never used before.
  virtual void Reset(int64_t episode, const EpisodeStart& start) = 0;
  // The policy's turn, once the former call has been answered.
  virtual void Step(int64_t episode, std::string action) = 0;
  // Ends the episode, in whatever state. No event of it comes any more. Idempotent.
  virtual void Close(int64_t episode) = 0;

  // What has come in since the last call. Does not wait.
  virtual std::vector<EpisodeEvent> Poll() = 0;
  // Waits for an event to take, for at most `timeout` of real time.
  virtual void Await(absl::Duration timeout) = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
