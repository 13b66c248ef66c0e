#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/call_budget.h"
#include "datastore/trajectory.h"

namespace freshet {

// The calls that a scorer may send to its server.
struct CallLimit {
  CallBudget* budget = nullptr;     // of the job; null: calls are not counted
  std::string_view component = {};  // that the scorer computes
  int64_t max_calls = 0;            // of the job; 0: no limit
};

// Input of a scorer for one sample. Views must outlive the call.
struct ScoreInput {
  std::string_view completion;    // decoded response text only, special tokens skipped
  int32_t completion_tokens = 0;  // response tokens, including a stop token
  bool finished = true;           // a stop token was sampled; false: cut by the length limit
  const std::map<std::string, std::string>& attributes;  // answer, prompt, template variables
  absl::Duration timeout = absl::Seconds(1);             // time limit of this call
  // Sum of the environment's rewards; absent if the sample is not an episode.
  std::optional<double> env_reward = std::nullopt;
  // If requested, the score is no longer needed; scorers that wait for a service return early.
  std::stop_token cancel = {};
  std::string_view uid = {};                   // of the sample; empty: unknown
  double trace_ratio = 0;                      // share of samples with lifecycle logging
  std::span<const StepReward> env_steps = {};  // the environment's rewards, if they are known
  // The completions of all samples of the group, if a reward of the job needs them. Empty in an
  // evaluation.
  std::span<const std::string> group = {};
  int32_t index = 0;  // of this completion in `group`; no meaning if that is empty
  CallLimit calls = {};
};

// One scorer's result for one sample.
struct ComponentScore {
  double value = 0;                          // unweighted, finite
  ScoreOutcome outcome = ScoreOutcome::kOk;  // kOk or kWrongFormat
  // Optional named parts of the value; finite. Informational: they are not summed.
  std::map<std::string, double> parts = {};
  // The parts of the value that belong to a step of the response, with increasing ends.
  std::vector<StepReward> steps = {};
};

// Scores a completion. Pure: the same input gives the same value.
//
// A completion that cannot be judged because of its form gets a value (kWrongFormat). A scorer that
// fails returns a Status, which is never taken for a reward of 0:
//   CANCELLED: `cancel` was requested; neither the row nor the scorer is at fault.
//   DEADLINE_EXCEEDED: it exceeded `timeout` or a work limit.
//   FAILED_PRECONDITION: the row lacks something required (an attribute, a parsable answer).
//   UNAVAILABLE: a service that it calls is unavailable; the row waits without a failure.
//   ABORTED: a service became unavailable while it had the row, which may be the cause.
//   any other code: infrastructure error; the row is retried up to its job's limit.
// Implementations are thread-safe.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const = 0;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_
