#ifndef FRESHET_DATASTORE_TRAJECTORY_H_
#define FRESHET_DATASTORE_TRAJECTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/policy_version.h"

namespace freshet {

// Tokens [begin, end) of one response, all sampled by one policy version.
struct Span {
  PolicyVersion policy;
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const Span&) const = default;
};

enum class FinishReason { kNone, kStop, kLength };

// What a rollout engine made of one prompt. response_ids, behavior_logprobs and loss_mask have one
// entry per response token, sampling_logprobs one per token or none; spans cover
// [0, response_ids.size()) in order without gaps.
struct Response {
  std::vector<int32_t> response_ids;
  // log p(token) under the policy that sampled it, after the temperature and before top_k and
  // top_p, in nats: what a trainer compares its own log-probs with. 0 at observation tokens.
  std::vector<float> behavior_logprobs;
  // 1 where the token bears loss; 0 for observation tokens.
  std::vector<uint8_t> loss_mask;
  std::vector<Span> spans;
  FinishReason finish = FinishReason::kNone;
  // log p(token) under the distribution that it was drawn from, after top_k and top_p, in nats.
  // Empty if no token was drawn from a truncated distribution: behavior_logprobs hold the values
  // then. If only some were, the other tokens repeat their entries of behavior_logprobs.
  std::vector<float> sampling_logprobs;
  // Sum of the rewards that an environment gave in this episode; absent without an environment.
  std::optional<double> env_reward = std::nullopt;
};

// Ones among the entries [begin, end) of a loss mask, which holds 0 and 1.
int64_t CountLossTokens(const std::vector<uint8_t>& loss_mask, int32_t begin, int32_t end);

// One prompt of a job. `ordinal` is its number in the job: assigned once, growing.
struct Prompt {
  int64_t ordinal = 0;
  // Attempt number of its first lease; larger than any attempt of the same ordinal ever used
  // before, so that a uid is never reused after a resume.
  int32_t first_attempt = 0;
  std::vector<int32_t> prompt_ids;
  // What scorers need besides the response: `prompt` (text), `answer`, template variables.
  std::map<std::string, std::string> attributes;
};

// Identity of a sample: (job, ordinal, attempt, index), never reused.
struct SampleKey {
  int64_t ordinal = 0;
  int32_t attempt = 0;
  int32_t index = 0;
  auto operator<=>(const SampleKey&) const = default;
};

// "job/ordinal/attempt/index"
std::string SampleUid(const std::string& job, const SampleKey& key);

// How the scoring of a sample ended. An infrastructure error is never a reward.
enum class ScoreOutcome { kOk, kWrongFormat, kTimeout, kInfraError };

// Result of the `score` task for one sample.
struct Score {
  double reward = 0;                         // weighted sum of the components
  std::map<std::string, double> components;  // unweighted value by component name
  ScoreOutcome outcome = ScoreOutcome::kOk;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_TRAJECTORY_H_
