#ifndef FRESHET_DATASTORE_ADAPTIVE_ROLLOUTS_H_
#define FRESHET_DATASTORE_ADAPTIVE_ROLLOUTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "datastore/trajectory.h"

namespace freshet {

// Number and length of a group's samples, by the measured success of its dataset row: fewer samples
// of prompts that mostly succeed, and a limit of their length (DART, arXiv:2509.23866, "dynamic
// rollout frequency" and "dynamic trajectory length"). All TrajectoryStore backends use these
// functions, or a server-side script that is tested against them.
//
// All functions are pure and thread-safe.

struct AdaptiveOptions {
  int32_t min_group_size = 1;    // samples of a prompt that always succeeds, at most G
  double min_reward = 0;         // of a success
  double max_tokens_factor = 0;  // times the longest success: limit of a sample; 0: no limit

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  absl::Status Validate(int32_t group_size) const;
  friend bool operator==(const AdaptiveOptions&, const AdaptiveOptions&) = default;
};

// Success of a dataset row's or a task's samples. Older groups count less (kRowMemory).
struct RolloutHistory {
  double successes = 0;
  double samples = 0;   // 0: nothing is known
  int64_t longest = 0;  // tokens of the longest success; 0: there is none
  friend bool operator==(const RolloutHistory&, const RolloutHistory&) = default;
};

// What older groups still count when a group is added: half for a row, 31/32 for a task.
constexpr double kRowMemory = 0.5;
constexpr double kTaskMemory = 0.96875;

struct SampleOutcome {
  double reward = 0;
  int64_t tokens = 0;  // of the response
};
// `history` with a scored group's samples.
RolloutHistory WithGroup(const AdaptiveOptions& options, const RolloutHistory& history,
                         double memory, const std::vector<SampleOutcome>& samples);

struct RolloutDecision {
  int32_t samples = 1;
  int64_t max_new_tokens = 0;  // of a sample, besides the job's limit; 0: only that one
};
// By the history of the row or, if it has none, of its task. G samples if at most half of them
// succeed (p <= 1/2); otherwise min_group_size plus the share 4 * p * (1 - p) of the rest, rounded
// up.
RolloutDecision DecideRollouts(const AdaptiveOptions& options, int32_t group_size,
                               const RolloutHistory& row, const RolloutHistory& task);

// Maximum number of rows and tasks with a history. Further rows have that of their task.
constexpr size_t kMaxHistories = 65536;

// The job's histories. Confined to one thread at a time.
class RolloutHistories {
 public:
  using ByName = std::map<std::string, RolloutHistory>;
  RolloutHistories() = default;
  // Those of an earlier process.
  RolloutHistories(ByName rows, ByName tasks) : rows_(std::move(rows)), tasks_(std::move(tasks)) {}

  const ByName& rows() const { return rows_; }    // by prompt key
  const ByName& tasks() const { return tasks_; }  // by name

  // `prompt_key`: PromptKey of the prompt.
  void Add(const AdaptiveOptions& options, const Prompt& prompt, const std::string& prompt_key,
           const std::vector<SampleOutcome>& samples);
  RolloutDecision Decide(const AdaptiveOptions& options, int32_t group_size, const Prompt& prompt,
                         const std::string& prompt_key) const;

 private:
  ByName rows_;
  ByName tasks_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_ADAPTIVE_ROLLOUTS_H_
