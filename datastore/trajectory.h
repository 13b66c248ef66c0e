#ifndef FRESHET_DATASTORE_TRAJECTORY_H_
#define FRESHET_DATASTORE_TRAJECTORY_H_

#include <array>
#include <cstddef>
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

// Reward of one environment step. It belongs to the response tokens from the previous entry's end
// (0 for the first) to `end`, exclusive.
struct StepReward {
  int32_t end = 0;  // token index in the response
  double reward = 0;
  bool operator==(const StepReward&) const = default;
};

// kNotAsked: the policy was not asked in an episode that has ended, so that the response says
// nothing: its tokens only take the place of others and bear no loss.
enum class FinishReason { kNone, kStop, kLength, kNotAsked };

// Output of a rollout engine for one prompt. response_ids, behavior_logprobs and loss_mask have one
// entry per response token; sampling_logprobs has one per token or is empty; spans cover [0,
// response_ids.size()) in order without gaps.
struct Response {
  std::vector<int32_t> response_ids;
  // log p(token) in nats under the sampling policy, after temperature and before top_k and top_p.
  // The trainer compares its own log-probs with these. 0 for observation tokens.
  std::vector<float> behavior_logprobs;
  // 1 for loss-bearing tokens, 0 for observation tokens.
  std::vector<uint8_t> loss_mask;
  std::vector<Span> spans;
  FinishReason finish = FinishReason::kNone;
  // log p(token) in nats under the distribution it was drawn from, after top_k and top_p. Empty if
  // no token was drawn from a truncated distribution. Tokens that were not drawn from one repeat
  // their behavior_logprobs entry.
  std::vector<float> sampling_logprobs;
  // Sum of the environment's rewards in this episode; absent without an environment.
  std::optional<double> env_reward = std::nullopt;
  // The share of env_reward that each turn earned; ends increase. Empty if unknown.
  std::vector<StepReward> step_rewards = {};
  // Where the segments of an episode of several conversations begin, the first at 0; empty: the
  // response is one segment. Each is a sequence of its own: a context without loss, then sampled
  // tokens and what was appended to them. No span crosses a segment's begin.
  std::vector<int32_t> segments = {};
};

constexpr size_t kMaxSegments = 256;  // of a response

// Tokens [begin, end) of a response.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const TokenRange&) const = default;
};

// The tokens of the response's text: none with kNotAsked, otherwise response_ids.
const std::vector<int32_t>& CompletionIds(const Response& response);

// The segments of a response, at least one. Requires segments as CheckResponse accepts them.
std::vector<TokenRange> SegmentsOf(const Response& response);

// Number of ones in [begin, end) of a loss mask.
int64_t CountLossTokens(const std::vector<uint8_t>& loss_mask, int32_t begin, int32_t end);

// One prompt of a job. `ordinal` is its number in the job: assigned once, increasing.
struct Prompt {
  int64_t ordinal = 0;
  // Attempt number of the first lease. Larger than any earlier attempt of this ordinal, so that
  // uids are not reused after a resume.
  int32_t first_attempt = 0;
  std::vector<int32_t> prompt_ids;
  // Input of scorers besides the response: `prompt` (text), `answer`, template variables.
  std::map<std::string, std::string> attributes;
};

// Equal for repetitions of a dataset row: a hash of the prompt's tokens and attributes, as 16 hex
// digits.
std::string PromptKey(const Prompt& prompt);

// Identity of a sample: (job, ordinal, attempt, index), never reused.
struct SampleKey {
  int64_t ordinal = 0;
  int32_t attempt = 0;
  int32_t index = 0;
  auto operator<=>(const SampleKey&) const = default;
};

// "job/ordinal/attempt/index"
std::string SampleUid(const std::string& job, const SampleKey& key);

// Outcome of scoring a sample. An infrastructure error is never converted to a reward.
enum class ScoreOutcome { kOk, kWrongFormat, kTimeout, kInfraError };
// In files and metrics.
inline constexpr std::array kScoreOutcomeNames = {"ok", "wrong_format", "timeout", "infra_error"};

// Result of the `score` task for one sample.
struct Score {
  double reward = 0;                         // weighted sum of the components
  std::map<std::string, double> components;  // unweighted value by component name
  ScoreOutcome outcome = ScoreOutcome::kOk;
  // The weighted share of `reward` that each step earned; ends increase. The rest belongs to the
  // whole response.
  std::vector<StepReward> step_rewards = {};
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_TRAJECTORY_H_
