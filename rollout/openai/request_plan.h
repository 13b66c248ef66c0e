#ifndef FRESHET_ROLLOUT_OPENAI_REQUEST_PLAN_H_
#define FRESHET_ROLLOUT_OPENAI_REQUEST_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rollout/engine/sampling.h"
#include "rollout/openai/api_request.h"
#include "text/tokenizer.h"

namespace freshet::openai {

// max_tokens of completions without one, at most what the context leaves.
constexpr int64_t kDefaultMaxTokens = 16;

// What a request is checked against.
struct ServedModel {
  int64_t context = 0;  // tokens
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_ids;
  int64_t cache_blocks = 0;  // of the engine; 0: unlimited
  bool scalar_head = false;  // it answers /pooling only; otherwise the others only
};

// A prompt or conversation of more bytes than the tokens of the context can stand for, and than
// this, is refused before it is rendered or encoded.
constexpr int64_t kMinInputBytes = 256 << 10;

// The ids of the request's prompts or conversation, all valid. `now` is for templates that print
// the date. Returns ParameterErrors, FAILED_PRECONDITION without a chat template, and UNAVAILABLE
// as Tokenizer::EncodeChat.
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePrompts(const ApiRequest& request,
                                                                const ServedModel& model,
                                                                const Tokenizer& tokenizer,
                                                                absl::Time now);

// How the responses to a prompt of this many tokens are sampled. Without max_tokens, those of a
// conversation may fill the context, the KV cache and kMaxLogprobs. For /pooling, nothing is
// sampled. The tokenizer must outlive the result. Returns ParameterErrors: the prompt leaves no
// room in the context, or less than max_tokens; n responses exceed the KV cache; more than
// kMaxLogprobs log-probs; min_tokens above max_tokens; ids outside of the vocabulary.
absl::StatusOr<SamplingParams> PlanSampling(const ApiRequest& request, int64_t prompt_tokens,
                                            const ServedModel& model, const Tokenizer& tokenizer);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_REQUEST_PLAN_H_
