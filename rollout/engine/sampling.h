#ifndef FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
#define FRESHET_ROLLOUT_ENGINE_SAMPLING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace freshet {

// How tokens are drawn from logits.
struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;        // nucleus: smallest set of most likely tokens with mass >= top_p
  int32_t top_k = 0;         // 0: all
  int32_t max_new_tokens = 1;
  std::vector<int32_t> stop_ids;  // a stop token ends the response and is part of it

  // INVALID_ARGUMENT naming the parameter and its range.
  absl::Status Validate() const;
  // Whether tokens are drawn from a part of the vocabulary. Greedy tokens are not drawn.
  bool Truncates() const { return temperature > 0 && (top_k > 0 || top_p < 1.0); }
};

struct SampledToken {
  int32_t id = 0;
  // log p(id) over the whole vocabulary: after the temperature, before top_k and top_p. Greedy
  // tokens carry their log-prob at temperature 1.
  float logprob = 0;
  // log p(id) under the distribution that it was drawn from: after top_k and top_p. The same as
  // `logprob` where nothing is truncated.
  float sampling_logprob = 0;
};

// Draws one token from `logits` [vocab_size]. `uniform` in [0, 1) decides, so the same logits and
// number give the same token. Order of truncation: top_k, then top_p over what is left. Ties at a
// cut are broken towards the smaller id.
SampledToken SampleToken(const float* logits, int64_t vocab_size, const SamplingParams& params,
                         double uniform);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_SAMPLING_H_
