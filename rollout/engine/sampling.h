#ifndef FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
#define FRESHET_ROLLOUT_ENGINE_SAMPLING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace freshet {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;        // nucleus: smallest set of most likely tokens with mass >= top_p
  int32_t top_k = 0;         // 0: all
  int32_t max_new_tokens = 1;
  std::vector<int32_t> stop_ids;  // a stop token ends the response and is part of it

  // INVALID_ARGUMENT naming the parameter and its range.
  absl::Status Validate() const;
  // Whether sampling is restricted to part of the vocabulary. False for greedy decoding.
  bool Truncates() const { return temperature > 0 && (top_k > 0 || top_p < 1.0); }
};

struct SampledToken {
  int32_t id = 0;
  // log p(id) over the whole vocabulary, after the temperature and before top_k and top_p. For
  // greedy tokens, at temperature 1.
  float logprob = 0;
  // log p(id) after top_k and top_p. Equals `logprob` without truncation.
  float sampling_logprob = 0;
};

// Samples one token from `logits` [vocab_size]. Deterministic in logits and `uniform`, which is in
// [0, 1). Applies top_k, then top_p to the rest. Ties at a cut favor the smaller id.
SampledToken SampleToken(const float* logits, int64_t vocab_size, const SamplingParams& params,
                         double uniform);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
