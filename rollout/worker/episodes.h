#ifndef FRESHET_ROLLOUT_WORKER_EPISODES_H_
#define FRESHET_ROLLOUT_WORKER_EPISODES_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/trajectory.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/sessions/episode_limit.h"

namespace freshet {

// Samples of one prompt to be played as episodes.
struct EpisodeGroup {
  Lane lane = Lane::kRollout;
  int64_t id = 0;  // unique among the lane's open groups
  std::vector<int32_t> prompt_ids;
  std::map<std::string, std::string> attributes;  // fields of the row
  uint64_t seed = 0;                              // with the ordinal, also seeds the environment
  int64_t ordinal = 0;
  std::vector<int32_t> sample_indices;
  SamplingParams sampling;  // max_new_tokens bounds the whole response, including observations
  std::vector<std::string> uids = {};  // of the samples, aligned with their indices; or empty
};

// Whose failure ended an episode: its environment's (or nobody's), the engine's as a whole, or the
// engine's on one request of the episode.
enum class EpisodeFailure { kEnvironment, kEngine, kRequest };

// A trajectory, or the error for which the episode was given up.
struct EpisodeResult {
  Lane lane = Lane::kRollout;
  int64_t group = 0;
  int32_t sample_index = 0;
  absl::StatusOr<Response> response = Response{};
  EpisodeFailure failure = EpisodeFailure::kEnvironment;
};

struct EpisodeCounters {
  int64_t open = 0;
  int64_t terminated = 0;  // ended by the environment
  int64_t truncated = 0;   // cut off
  std::map<EpisodeLimit, int64_t> truncated_by = {};
  int64_t not_asked = 0;  // of the ended ones: FinishReason::kNotAsked
  int64_t restarted = 0;  // restarted after a failure
  int64_t refused = 0;    // tries for which all workers were full
  int64_t given_up = 0;
  int64_t turns = 0;               // of ended episodes
  int64_t waiting_for_engine = 0;  // turns that do not fit into the engine now
  // Episodes waiting for their environment, including those to be restarted after a failure.
  int64_t waiting_for_environment = 0;
  // Since when no environment has answered while episodes waited; failures are not answers.
  // Infinite future if none waits.
  absl::Time silent_since = absl::InfiniteFuture();
};

// Counts an episode that has ended; `limit`: what truncated it, if anything.
void CountEnd(std::optional<EpisodeLimit> limit, EpisodeCounters& counters);

// "3 episodes wait for environment LABEL since 6s"; "" if the silence is shorter than 100 ms. Pure.
std::string DescribeSilence(const EpisodeCounters& counters, const std::string& label,
                            absl::Time now);

// Plays samples of prompts as episodes. All samples of a group get the same episode. A failed
// episode restarts with the same seed. Non-blocking: Advance does what is possible now. Used by the
// engine's thread only.
class Episodes {
 public:
  virtual ~Episodes() = default;

  virtual void Start(EpisodeGroup spec) = 0;
  // Drops the rest of a group: no further results of it are returned.
  virtual void Cancel(Lane lane, int64_t id) = 0;

  // Returns the episodes that ended. `outputs` are those of the engine. Errors of a result:
  // INVALID_ARGUMENT: retrying the prompt is useless; any other: an episode has failed too often,
  // or the engine failed on it (`failure`).
  virtual std::vector<EpisodeResult> Advance(std::vector<GenerationOutput> outputs) = 0;

  // Waits for something to do, for at most `timeout` of real time.
  virtual void Await(absl::Duration timeout) = 0;
  // What is ready does not fit into the engine.
  virtual bool waiting_for_engine() const = 0;
  virtual int64_t open() const = 0;
  // Further episodes only wait.
  virtual int64_t most_open() const { return std::numeric_limits<int64_t>::max(); }
  virtual const std::string& label() const = 0;  // of the environment, in messages
  virtual EpisodeCounters counters() const = 0;
  // Number of the environment's answers so far.
  virtual int64_t answers() const = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_EPISODES_H_
