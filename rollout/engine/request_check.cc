#include "rollout/engine/request_check.h"

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Checks kept tokens of an earlier attempt: equal column lengths, valid tokens, and at least one
// token left to generate.
absl::Status CheckPartial(const GenerationRequest& request, const Response& partial,
                          int64_t vocab_size) {
  const size_t size = partial.response_ids.size();
  const size_t truncated = partial.sampling_logprobs.size();
  if (partial.behavior_logprobs.size() != size || partial.loss_mask.size() != size ||
      (truncated != size && truncated != 0)) {
    return InvalidArgument("request ", request.id, ": columns of a partial response of ", size,
                           " tokens differ in length");
  }
  if (partial.finish != FinishReason::kNone) {
    return InvalidArgument("request ", request.id, ": a partial response is finished");
  }
  if (size >= static_cast<size_t>(request.sampling.max_new_tokens)) {
    return InvalidArgument("request ", request.id, ": a partial response of ", size,
                           " tokens leaves none of max_new_tokens ",
                           request.sampling.max_new_tokens);
  }
  for (const int32_t id : partial.response_ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("request ", request.id, ": token ", id,
                             " of a partial response is outside of the vocabulary of ", vocab_size);
    }
  }
  return absl::OkStatus();
}

// Checks that the ids of the sampling parameters are in the vocabulary.
absl::Status CheckSamplingIds(const GenerationRequest& request, int64_t vocab_size) {
  const auto check = [&](const char* name, int32_t id) {
    if (id >= 0 && id < vocab_size) return absl::OkStatus();
    return InvalidArgument("request ", request.id, ": ", name, " ", id,
                           " is outside of the vocabulary of ", vocab_size);
  };
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    FRESHET_RETURN_IF_ERROR(check("logit_bias of token", id));
  }
  if (request.sampling.min_new_tokens > 0) {
    for (const int32_t id : request.sampling.stop_ids) {
      FRESHET_RETURN_IF_ERROR(check("stop token", id));
    }
  }
  return absl::OkStatus();
}

// Checks that the request asks for what the model's head gives.
absl::Status CheckHead(const GenerationRequest& request, const ModelConfig& config) {
  const bool pooled = request.on_score != nullptr;
  if (pooled != config.scalar_head) {
    return InvalidArgument(
        "request ", request.id, ": the model has ",
        pooled ? "no scalar head, so it gives no score" : "a scalar head, so it generates no text");
  }
  if (!pooled) return request.sampling.Validate();
  if (request.sampling.max_new_tokens != 0 || request.sample_indices.size() != 1 ||
      !request.partials.empty()) {
    return InvalidArgument("request ", request.id,
                           ": a pooled request has max_new_tokens 0, one sample and no partials");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const GenerationRequest& request, const ModelConfig& config) {
  FRESHET_RETURN_IF_ERROR(CheckHead(request, config));
  FRESHET_RETURN_IF_ERROR(CheckSamplingIds(request, config.vocab_size));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt_tokens == 0) return InvalidArgument("request ", request.id, ": empty prompt");
  if (prompt_tokens + request.sampling.max_new_tokens > config.max_position_embeddings) {
    return InvalidArgument("request ", request.id, ": ", prompt_tokens, " prompt tokens and ",
                           request.sampling.max_new_tokens,
                           " new ones do not fit into the context of ",
                           config.max_position_embeddings);
  }
  for (const int32_t id : request.prompt_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return InvalidArgument("request ", request.id, ": token ", id,
                             " is outside of the vocabulary of ", config.vocab_size);
    }
  }
  if (request.sample_indices.empty()) {
    return InvalidArgument("request ", request.id, ": no samples");
  }
  if (!request.partials.empty() && request.partials.size() != request.sample_indices.size()) {
    return InvalidArgument("request ", request.id, ": ", request.partials.size(),
                           " partial responses for ", request.sample_indices.size(), " samples");
  }
  for (const Response& partial : request.partials) {
    FRESHET_RETURN_IF_ERROR(CheckPartial(request, partial, config.vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace freshet
