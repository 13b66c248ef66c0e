#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

// What a scorer sees of one sample. Views must outlive the call.
struct ScoreInput {
  std::string_view completion;    // decoded text of the response only, special tokens skipped
  int32_t completion_tokens = 0;  // response tokens, a stop token included
  bool finished = true;           // a stop token was sampled; false: cut by the length limit
  const std::map<std::string, std::string>& attributes;  // answer, prompt, template variables
  absl::Duration timeout = absl::Seconds(1);             // time that this call may take
  // Rewards that an environment gave, added up; absent when the sample is no episode.
  std::optional<double> env_reward = std::nullopt;
  // Requested: the score is not needed. Scorers that wait for a service stop then.
  std::stop_token cancel = {};
  std::string_view uid = {};  // of the sample; empty: not known
  double trace_ratio = 0;     // share of the samples whose lives are logged
};

// One scorer's opinion of one sample.
struct ComponentScore {
  double value = 0;                          // unweighted, finite
  ScoreOutcome outcome = ScoreOutcome::kOk;  // kOk or kWrongFormat
  // What the value is made of, by name, where the scorer says so; finite. For people: not added up.
  std::map<std::string, double> parts = {};
};

// Judges a completion. Pure: the same input gives the same value.
//
// A completion that cannot be judged because of its form is a value (kWrongFormat). A scorer that
// fails returns a Status, which is never taken for a reward of 0:
//   CANCELLED: `cancel` was requested; no fault of the row or the scorer.
//   DEADLINE_EXCEEDED: it ran into `timeout` or a limit on its work.
//   FAILED_PRECONDITION: the row lacks what the scorer needs (an attribute, a readable answer).
//   UNAVAILABLE: a service that it calls is away; no fault of the row, which waits for it.
//   ABORTED: a service that it calls became unavailable while it had the row, which may be why.
//   any other code: infrastructure error; the row is tried again, as often as its job allows.
// Implementations are thread-safe.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const = 0;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORER_H_
