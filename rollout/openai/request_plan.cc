#include "rollout/openai/request_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/kv_cache_size.h"
#include "rollout/openai/api_error.h"

namespace freshet::openai {
namespace {

const char* InputName(const ApiRequest& request) {
  if (request.chat) return "messages";
  return request.pooling ? "input" : "prompt";
}

absl::Status CheckId(const char* param, int32_t id, const ServedModel& model) {
  if (id >= 0 && id < model.vocab_size) return absl::OkStatus();
  return ParameterError(
      param, StrCat("token ", id, " is outside of the vocabulary of ", model.vocab_size));
}

// The longest input that can fit into the context.
size_t MaxInputBytes(const ServedModel& model, const Tokenizer& tokenizer) {
  const int64_t most = model.context * tokenizer.longest_token_bytes();
  return static_cast<size_t>(std::max(most, kMinInputBytes));
}

absl::StatusOr<std::vector<int32_t>> Encode(const ApiRequest& request, const ApiPrompt& prompt,
                                            const Tokenizer& tokenizer, size_t max_bytes) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (prompt.text.size() > max_bytes) {
    return InvalidArgument("has ", prompt.text.size(), " bytes; at most ", max_bytes,
                           " can fit into this model's context");
  }
  return request.add_special_tokens ? tokenizer.EncodeWithSpecial(prompt.text)
                                    : tokenizer.Encode(prompt.text);
}

// The most tokens that each of `n` answers can have in the KV cache; see KvBlocksOfGroup.
int64_t TokensInCache(int64_t prompt_tokens, int64_t n, const ServedModel& model) {
  if (model.cache_blocks == 0) return model.context;
  const int64_t shared = prompt_tokens / kKvBlockTokens;
  const int64_t of_prompt = (prompt_tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  return ((model.cache_blocks - of_prompt) / n + shared) * kKvBlockTokens - prompt_tokens;
}

// The most tokens that the log-probs of an answer that is not streamed leave.
int64_t TokensByLogprobs(const ApiRequest& request, const ServedModel& model) {
  if (!request.logprobs || request.stream) return model.context;
  const auto prompts = static_cast<int64_t>(std::max<size_t>(request.prompts.size(), 1));
  return kMaxLogprobs / (prompts * request.n * (1 + request.sampling.top_logprobs));
}

// How many tokens each answer may have.
absl::StatusOr<int64_t> PlanMaxTokens(const ApiRequest& request, int64_t prompt_tokens,
                                      const ServedModel& model) {
  const int64_t room = model.context - prompt_tokens;
  if (room < 1) {
    return ParameterError(InputName(request), StrCat("has ", prompt_tokens,
                                                     " tokens, which leaves no room in this "
                                                     "model's context of ",
                                                     model.context));
  }
  const int64_t by_cache = TokensInCache(prompt_tokens, request.n, model);
  if (by_cache < 1) {
    return ParameterError("n", StrCat("is ", request.n, "; so many answers to ", prompt_tokens,
                                      " prompt tokens do not fit into the KV cache"));
  }
  const int64_t by_logprobs = TokensByLogprobs(request, model);
  if (!request.max_tokens.has_value()) {
    return std::min({room, by_cache, by_logprobs, request.chat ? room : kDefaultMaxTokens});
  }
  const int64_t wanted = *request.max_tokens;
  if (wanted > room) {
    return ParameterError(
        "max_tokens", StrCat("is ", wanted, ", but ", prompt_tokens, " prompt tokens leave ", room,
                             " of this model's context of ", model.context));
  }
  if (wanted > by_cache) {
    return ParameterError(request.n > 1 ? "n" : "max_tokens",
                          StrCat("n is ", request.n, " and max_tokens ", wanted,
                                 "; the KV cache holds ", by_cache, " tokens of each answer"));
  }
  if (wanted > by_logprobs) {
    return ParameterError("max_tokens",
                          StrCat("is ", wanted, "; with these logprobs, n and prompts ",
                                 "want at most ", by_logprobs, ", or stream: true"));
  }
  return wanted;
}

absl::StatusOr<SamplingParams> PlanPooling(const ApiRequest& request, int64_t prompt_tokens,
                                           const ServedModel& model) {
  if (prompt_tokens > model.context) {
    return ParameterError(InputName(request),
                          StrCat("has ", prompt_tokens, " tokens, which do not fit into this ",
                                 "model's context of ", model.context));
  }
  SamplingParams nothing;
  nothing.max_new_tokens = 0;
  return nothing;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePrompts(const ApiRequest& request,
                                                                const ServedModel& model,
                                                                const Tokenizer& tokenizer,
                                                                absl::Time now) {
  std::vector<std::vector<int32_t>> prompts;
  const auto add = [&](absl::StatusOr<std::vector<int32_t>> ids) -> absl::Status {
    if (ids.status().code() == absl::StatusCode::kInvalidArgument) {
      return ParameterError(InputName(request), Message(ids.status()));
    }
    FRESHET_RETURN_IF_ERROR(ids.status());
    if (ids->empty()) {
      return ParameterError(InputName(request),
                            "has no tokens, and this model's tokenizer adds none");
    }
    for (const int32_t id : *ids) FRESHET_RETURN_IF_ERROR(CheckId(InputName(request), id, model));
    prompts.push_back(*std::move(ids));
    return absl::OkStatus();
  };
  const size_t max_bytes = MaxInputBytes(model, tokenizer);
  if (request.chat) {
    ChatRequest conversation = request.conversation;
    conversation.now = now;
    conversation.max_bytes = std::min(conversation.max_bytes, max_bytes);
    FRESHET_RETURN_IF_ERROR(add(tokenizer.EncodeChat(conversation)));
  }
  for (const ApiPrompt& prompt : request.prompts) {
    FRESHET_RETURN_IF_ERROR(add(Encode(request, prompt, tokenizer, max_bytes)));
  }
  return prompts;
}

absl::StatusOr<SamplingParams> PlanSampling(const ApiRequest& request, int64_t prompt_tokens,
                                            const ServedModel& model, const Tokenizer& tokenizer) {
  if (request.pooling) return PlanPooling(request, prompt_tokens, model);
  FRESHET_ASSIGN_OR_RETURN(const int64_t max_tokens, PlanMaxTokens(request, prompt_tokens, model));
  SamplingParams sampling = request.sampling;
  sampling.max_new_tokens = static_cast<int32_t>(max_tokens);
  if (sampling.min_new_tokens > sampling.max_new_tokens) {
    return ParameterError("min_tokens", StrCat("is ", sampling.min_new_tokens, ", above the ",
                                               sampling.max_new_tokens, " tokens that may follow"));
  }
  for (const auto& [id, bias] : sampling.logit_bias) {
    FRESHET_RETURN_IF_ERROR(CheckId("logit_bias", id, model));
  }
  for (const int32_t id : request.stop_token_ids) {
    FRESHET_RETURN_IF_ERROR(CheckId("stop_token_ids", id, model));
  }
  sampling.stop_ids = request.stop_token_ids;
  if (!request.ignore_eos) {
    sampling.stop_ids.insert(sampling.stop_ids.end(), model.eos_ids.begin(), model.eos_ids.end());
  }
  if (!request.stop.empty()) {
    sampling.stop_strings = std::make_shared<StopStrings>(request.stop, tokenizer);
  }
  if (absl::Status status = sampling.Validate(); !status.ok()) return status;
  return sampling;
}

}  // namespace freshet::openai
