#include "rollout/grpc/generate_call.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

constexpr int32_t kMaxSamples = 128;
constexpr int kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 1024;  // of each
constexpr int kMaxStopTokens = 1024;
constexpr size_t kMaxPromptBytes = 1 << 20;

trajectory::v1::FinishReason FinishProto(FinishReason finish) {
  switch (finish) {
    case FinishReason::kStop:
      return trajectory::v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return trajectory::v1::FINISH_REASON_LENGTH;
    default:
      return trajectory::v1::FINISH_REASON_UNSPECIFIED;
  }
}

absl::StatusOr<SamplingParams> ToSampling(const rollout::v1::Sampling& asked,
                                          const Tokenizer& tokenizer,
                                          const std::vector<int32_t>& eos_ids) {
  SamplingParams sampling;
  sampling.max_new_tokens = asked.max_new_tokens();
  if (asked.has_temperature()) sampling.temperature = asked.temperature();
  if (asked.has_top_p()) sampling.top_p = asked.top_p();
  sampling.top_k = asked.top_k();
  sampling.min_p = asked.min_p();
  if (asked.has_repetition_penalty()) sampling.repetition_penalty = asked.repetition_penalty();
  sampling.presence_penalty = asked.presence_penalty();
  sampling.frequency_penalty = asked.frequency_penalty();
  sampling.min_new_tokens = asked.min_new_tokens();
  sampling.top_logprobs = asked.top_logprobs();
  if (!asked.ignore_eos()) {
    sampling.stop_ids = eos_ids;
    if (tokenizer.eos_id().has_value()) sampling.stop_ids.push_back(*tokenizer.eos_id());
  }
  sampling.stop_ids.insert(sampling.stop_ids.end(), asked.stop_token_ids().begin(),
                           asked.stop_token_ids().end());
  if (asked.stop_size() > kMaxStopStrings) {
    return InvalidArgument("sampling.stop: ", asked.stop_size(), " texts, want at most ",
                           kMaxStopStrings);
  }
  if (asked.stop_token_ids_size() > kMaxStopTokens) {
    return InvalidArgument("sampling.stop_token_ids: ", asked.stop_token_ids_size(),
                           " ids, want at most ", kMaxStopTokens);
  }
  if (asked.stop_size() > 0) {
    std::vector<std::string> texts(asked.stop().begin(), asked.stop().end());
    if (std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.empty(); })) {
      return InvalidArgument("sampling.stop: a text is empty");
    }
    for (const std::string& text : texts) {
      if (text.size() <= kMaxStopBytes) continue;
      return InvalidArgument("sampling.stop: a text has ", text.size(), " bytes, want at most ",
                             kMaxStopBytes);
    }
    sampling.stop_strings = std::make_shared<const StopStrings>(std::move(texts), tokenizer);
  }
  const absl::Status valid = sampling.Validate();
  if (!valid.ok()) return InvalidArgument("sampling: ", Message(valid));
  return sampling;
}

}  // namespace

absl::StatusOr<GenerationRequest> ToGenerationRequest(const rollout::v1::GenerateRequest& request,
                                                      const Tokenizer& tokenizer,
                                                      const std::vector<int32_t>& eos_ids,
                                                      uint64_t seed) {
  GenerationRequest generation;
  generation.prompt_ids = {request.prompt_ids().ids().begin(), request.prompt_ids().ids().end()};
  if (request.has_prompt()) {
    if (request.prompt().size() > kMaxPromptBytes) {
      return InvalidArgument("prompt: ", request.prompt().size(), " bytes, want at most ",
                             kMaxPromptBytes);
    }
    FRESHET_ASSIGN_OR_RETURN(generation.prompt_ids,
                             tokenizer.Encode(request.prompt(), SpecialTokens::kPlain));
  }
  if (generation.prompt_ids.empty()) {
    return InvalidArgument(request.has_prompt() ? "prompt" : "prompt_ids", ": is empty");
  }
  const int32_t samples = request.has_samples() ? request.samples() : 1;
  if (samples < 1 || samples > kMaxSamples) {
    return InvalidArgument("samples: want 1 to ", kMaxSamples, ", got ", samples);
  }
  generation.sample_indices.resize(static_cast<size_t>(samples));
  std::iota(generation.sample_indices.begin(), generation.sample_indices.end(), 0);
  generation.seed = request.has_seed() ? request.seed() : seed;
  FRESHET_ASSIGN_OR_RETURN(generation.sampling, ToSampling(request.sampling(), tokenizer, eos_ids));
  return generation;
}

std::shared_ptr<GenerateCall> GenerateCall::Open(int max_unread_tokens) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(max_unread_tokens));
  call->self_ = call;
  return call;
}

bool GenerateCall::Add(const GeneratedToken& token) {
  const MutexLock lock(mu_);
  if (ending_ || gone_) return false;
  if (unread_.tokens_size() >= max_unread_tokens_) {
    ending_ = true;
    status_ = ResourceExhausted("more than ", max_unread_tokens_,
                                " tokens wait to be read; read the stream faster");
    unread_.clear_tokens();
    Advance();
    return false;
  }
  rollout::v1::Token& added = *unread_.add_tokens();
  added.set_sample(token.sample_index);
  added.set_id(token.token.id);
  added.set_logprob(token.token.logprob);
  added.set_sampling_logprob(token.token.sampling_logprob);
  added.mutable_policy()->set_lineage(token.policy.lineage);
  added.mutable_policy()->set_version(token.policy.version);
  added.set_finish(FinishProto(token.finish));
  for (const TokenLogprob& likely : token.token.top) {
    rollout::v1::TokenLogprob& listed = *added.add_top();
    listed.set_id(likely.id);
    listed.set_logprob(likely.logprob);
  }
  Advance();
  return true;
}

void GenerateCall::End(const absl::Status& status) {
  const MutexLock lock(mu_);
  if (std::exchange(ending_, true)) return;
  status_ = status;
  Advance();
}

void GenerateCall::OnGone(std::function<void()> cancel) {
  {
    const MutexLock lock(mu_);
    if (!gone_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

void GenerateCall::Advance() {
  if (writing_ || finished_) return;
  if (unread_.tokens_size() > 0 && !gone_) {
    writing_ = true;
    written_.Clear();
    written_.Swap(&unread_);
    StartWrite(&written_);
  } else if (ending_) {
    finished_ = true;
    Finish(runtime::StatusToGrpc(status_));
  }
}

void GenerateCall::OnWriteDone(bool ok) {
  const MutexLock lock(mu_);
  writing_ = false;
  if (!ok) gone_ = true;
  Advance();
}

void GenerateCall::OnCancel() {
  std::function<void()> cancel;
  {
    const MutexLock lock(mu_);
    gone_ = true;
    cancel.swap(cancel_);
    if (!std::exchange(ending_, true)) status_ = absl::CancelledError("the caller is gone");
    Advance();
  }
  if (cancel) cancel();
}

void GenerateCall::OnDone() {
  const std::shared_ptr<GenerateCall> self = std::move(self_);  // may destroy this object
  const MutexLock lock(mu_);
  cancel_ = nullptr;
}

}  // namespace freshet
