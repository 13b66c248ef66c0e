#ifndef FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
#define FRESHET_ROLLOUT_ENGINE_SAMPLING_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rollout/engine/stop_strings.h"

namespace freshet {

constexpr int32_t kMaxTopLogprobs = 20;
constexpr double kMinTemperature = 1e-4;  // smallest above 0

// How tokens are sampled. Meanings and order of application are those of vLLM: logit_bias and
// min_new_tokens, penalties, temperature, min_p, top_k, top_p.
struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;        // nucleus: smallest set of most likely tokens with mass >= top_p
  int32_t top_k = 0;         // 0: all
  double min_p = 0.0;        // drops tokens below this share of the likeliest one's probability
  // Logits of tokens of the prompt and the response are divided by it if positive, otherwise
  // multiplied (Keskar et al. 2019, section 4.1). 1: none.
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;   // subtracted from the logits of tokens of the response
  double frequency_penalty = 0.0;  // likewise, times the token's number of occurrences
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits of these tokens
  int32_t min_new_tokens = 0;                         // no stop token before
  int32_t max_new_tokens = 1;
  std::vector<int32_t> stop_ids;  // a stop token ends the response and is part of it
  // A text that ends the response; its tokens are part of it. Null: none.
  std::shared_ptr<const StopStrings> stop_strings;
  int32_t top_logprobs = 0;  // likeliest tokens that SampledToken lists, at most kMaxTopLogprobs

  // INVALID_ARGUMENT naming the parameter and its range.
  absl::Status Validate() const;
  bool Penalizes() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
  // Whether logits change before the temperature.
  bool AdjustsLogits() const { return Penalizes() || !logit_bias.empty() || min_new_tokens > 0; }
  // Whether some tokens cannot be drawn.
  bool Truncates() const { return temperature > 0 && (top_k > 0 || top_p < 1.0 || min_p > 0.0); }
  // Whether tokens are drawn from another distribution than the model's at this temperature.
  bool ChangesDistribution() const { return AdjustsLogits() || Truncates(); }
};

// The tokens of a sequence that penalties apply to.
struct TokenCounts {
  std::unordered_set<int32_t> prompt;
  std::unordered_map<int32_t, int32_t> response;  // occurrences
  int32_t response_size = 0;

  void Add(int32_t id) {
    ++response[id];
    ++response_size;
  }
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t id = 0;
  // log p(id) of the model at the temperature, before anything else changes the distribution. For
  // greedy tokens, at temperature 1.
  float logprob = 0;
  // log p(id) in the distribution that the token is drawn from; for greedy tokens, in that of the
  // adjusted logits at temperature 1. Equals `logprob` unless ChangesDistribution().
  float sampling_logprob = 0;
  // The SamplingParams::top_logprobs likeliest tokens, likeliest first, in the distributions of
  // `logprob` and of `sampling_logprob`; the latter is empty unless ChangesDistribution(), and
  // leaves out tokens that cannot be drawn.
  std::vector<TokenLogprob> top;
  std::vector<TokenLogprob> sampling_top;
};

// Samples one token from `logits` [vocab_size], which are finite or -infinity, and not all the
// latter. Deterministic in its arguments; `uniform` is in
// [0, 1). Ties at a cut favor the smaller id. `counts` may be empty unless AdjustsLogits().
SampledToken SampleToken(const float* logits, int64_t vocab_size, const SamplingParams& params,
                         const TokenCounts& counts, double uniform);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
