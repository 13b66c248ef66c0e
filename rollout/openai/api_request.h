#ifndef FRESHET_ROLLOUT_OPENAI_API_REQUEST_H_
#define FRESHET_ROLLOUT_OPENAI_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rollout/engine/sampling.h"
#include "text/chat_request.h"

namespace freshet::openai {

// Limits of one request.
constexpr int32_t kMaxSamples = 128;  // n
constexpr size_t kMaxPrompts = 1024;  // in a list
constexpr size_t kMaxAnswers = 4096;  // n times prompts
constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopStringBytes = 1024;  // each
constexpr size_t kMaxStopIds = 1024;
constexpr int32_t kMaxTopLogprobs = 20;
constexpr int64_t kMaxLogprobs = 1 << 18;  // of all tokens of an answer that is not streamed

struct ApiPrompt {
  std::string text;
  std::vector<int32_t> ids;  // if not empty, instead of the text
};

// The body of POST /v1/completions, /v1/chat/completions or /pooling.
struct ApiRequest {
  bool pooling = false;            // then sampling and the answer's options have no meaning
  bool chat = false;               // it has messages
  std::string model;               // "": the served one
  std::vector<ApiPrompt> prompts;  // unless chat
  ChatRequest conversation;        // of chat
  bool add_special_tokens = true;  // to a prompt of text

  int32_t n = 1;
  std::optional<int32_t> max_tokens;  // absent: see PlanSampling
  // Without max_new_tokens, stop_ids and stop_strings.
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_text = false;
  bool skip_special_tokens = true;  // in the text of the answer

  bool logprobs = false;
  bool tokens_as_ids = false;  // "token_id:5" in place of a token's text
  bool return_token_ids = false;
  bool stream = false;
  bool include_usage = false;
  bool parse_tool_calls = false;
  bool parallel_tool_calls = true;  // false: only the first call counts
};

// Sampling parameters of a generation_config.json: temperature, top_k, top_p, min_p and
// repetition_penalty. Others, and values out of range, keep the default. A temperature above 0 but
// below kMinTemperature is 0. "" is valid.
SamplingParams SamplingDefaults(std::string_view generation_config);

// Parses and checks a body; absent sampling parameters are those of `defaults`. Members that this
// server does not support are errors, unless they are null, their value asks for nothing, or they
// never change an answer.
// INVALID_ARGUMENT: malformed JSON, or a ParameterError.
absl::StatusOr<ApiRequest> ParseCompletionRequest(std::string_view body,
                                                  const SamplingParams& defaults);
absl::StatusOr<ApiRequest> ParseChatRequest(std::string_view body, const SamplingParams& defaults);
// Only task `classify` without activation, which is what a reward model is asked for.
absl::StatusOr<ApiRequest> ParsePoolingRequest(std::string_view body);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_API_REQUEST_H_
