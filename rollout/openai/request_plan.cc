#include "rollout/openai/request_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/openai/api_error.h"

namespace freshet::openai {
namespace {

const char* InputName(const ApiRequest& request) { return request.chat ? "messages" : "prompt"; }

absl::Status CheckId(const char* param, int32_t id, const ServedModel& model) {
  if (id >= 0 && id < model.vocab_size) return absl::OkStatus();
  return ParameterError(
      param, StrCat("token ", id, " is outside of the vocabulary of ", model.vocab_size));
}

absl::StatusOr<std::vector<int32_t>> Encode(const ApiRequest& request, const ApiPrompt& prompt,
                                            const Tokenizer& tokenizer) {
  if (!prompt.ids.empty()) return prompt.ids;
  return request.add_special_tokens ? tokenizer.EncodeWithSpecial(prompt.text)
                                    : tokenizer.Encode(prompt.text);
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
    if (ids->empty()) return ParameterError(InputName(request), "has no tokens");
    for (const int32_t id : *ids) FRESHET_RETURN_IF_ERROR(CheckId(InputName(request), id, model));
    prompts.push_back(*std::move(ids));
    return absl::OkStatus();
  };
  if (request.chat) {
    ChatRequest conversation = request.conversation;
    conversation.now = now;
    FRESHET_RETURN_IF_ERROR(add(tokenizer.EncodeChat(conversation)));
  }
  for (const ApiPrompt& prompt : request.prompts) {
    FRESHET_RETURN_IF_ERROR(add(Encode(request, prompt, tokenizer)));
  }
  return prompts;
}

absl::StatusOr<SamplingParams> PlanSampling(const ApiRequest& request, int64_t prompt_tokens,
                                            const ServedModel& model, const Tokenizer& tokenizer) {
  const int64_t room = model.context - prompt_tokens;
  if (room < 1) {
    return ParameterError(InputName(request), StrCat("has ", prompt_tokens,
                                                     " tokens, which leaves no room in this "
                                                     "model's context of ",
                                                     model.context));
  }
  if (request.max_tokens.has_value() && *request.max_tokens > room) {
    return ParameterError("max_tokens", StrCat("is ", *request.max_tokens, ", but ", prompt_tokens,
                                               " prompt tokens leave ", room,
                                               " of this model's context of ", model.context));
  }
  SamplingParams sampling = request.sampling;
  const int64_t fallback = request.chat ? room : std::min(room, kDefaultMaxTokens);
  sampling.max_new_tokens = static_cast<int32_t>(request.max_tokens.value_or(fallback));
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
