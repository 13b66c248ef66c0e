#include "rollout/sessions/session.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/sessions/conversation.h"
#include "rollout/sessions/whole_response.h"

namespace freshet {
namespace {

// Whether two JSON texts mean the same.
bool SameJson(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const absl::StatusOr<nlohmann::json> left = ParseJson(a, "");
  const absl::StatusOr<nlohmann::json> right = ParseJson(b, "");
  return left.ok() && right.ok() && *left == *right;
}

size_t NumMessages(const std::string& messages) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(messages, "messages");
  return parsed.ok() ? parsed->size() : 0;
}

// Tokens without loss before the first sampled one belong to its span.
void AppendSampled(const GeneratedToken& token, bool truncates, Response& response) {
  const auto at = static_cast<int32_t>(response.response_ids.size());
  response.response_ids.push_back(token.token.id);
  response.behavior_logprobs.push_back(token.token.logprob);
  response.loss_mask.push_back(1);
  if (truncates) {
    response.sampling_logprobs.resize(static_cast<size_t>(at), 0.0F);
    response.sampling_logprobs.push_back(token.token.sampling_logprob);
  }
  if (response.spans.empty()) {
    response.spans.push_back({token.policy, 0, at + 1});
  } else if (response.spans.back().policy != token.policy) {
    response.spans.push_back({token.policy, at, at + 1});
  }
  response.spans.back().end = at + 1;
}

}  // namespace

Session::Session(SessionOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer) {}

absl::Status Session::Ended() {
  return absl::UnauthenticatedError("the session of this API key has ended");
}

bool Session::started() const {
  const MutexLock lock(mu_);
  return recorded_ != nullptr;
}

absl::Status Session::CheckOpen() const {
  if (closed_) return Ended();
  if (busy_) {
    return absl::AbortedError("another request of this session runs: a session has one at a time");
  }
  return absl::OkStatus();
}

absl::Status Session::CheckRequest(const Recorded& recorded, const SessionRequest& request) const {
  if (recorded.requests >= options_.max_requests) {
    return InvalidArgument("the session has had its ", options_.max_requests, " requests");
  }
  const SessionRequest& latest = recorded.latest;
  if (request.chat != latest.chat) {
    return InvalidArgument("a session is either a chat or a completion, not both");
  }
  if (!request.chat) return absl::OkStatus();
  if (!SameJson(request.conversation.tools, latest.conversation.tools)) {
    return InvalidArgument("the tools differ from those of the session's earlier requests");
  }
  if (!SameJson(request.conversation.kwargs, latest.conversation.kwargs)) {
    return InvalidArgument(
        "chat_template_kwargs differ from those of the session's earlier requests");
  }
  return CheckAppended(latest.conversation.messages, recorded.answer,
                       request.conversation.messages);
}

absl::StatusOr<std::vector<int32_t>> Session::Appended(const Recorded& recorded,
                                                       const SessionRequest& request) const {
  const SessionRequest& latest = recorded.latest;
  const std::vector<int32_t>& after = recorded.after.response_ids;
  if (request.chat) {
    return EncodeAfter(tokenizer_, request.conversation, NumMessages(latest.conversation.messages),
                       after.back());
  }
  if (!request.ids.empty()) {
    std::vector<int32_t> before = recorded.prompt;
    before.insert(before.end(), after.begin(), after.end());
    if (request.ids.size() >= before.size() &&
        std::equal(before.begin(), before.end(), request.ids.begin())) {
      return std::vector<int32_t>(request.ids.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                  request.ids.end());
    }
    return InvalidArgument("does not begin with the ", before.size(),
                           " tokens of the session so far, which may only be appended to");
  }
  if (!latest.ids.empty()) {
    return InvalidArgument("is a text, but the session's earlier prompts are token ids");
  }
  const std::string before = latest.text + recorded.answer;
  if (!request.text.starts_with(before)) {
    return InvalidArgument("does not begin with the ", before.size(),
                           " bytes of the session so far, which may only be appended to");
  }
  return tokenizer_.Encode(std::string_view(request.text).substr(before.size()));
}

SamplingParams Session::Sampling(const SessionRequest& request, int32_t max_new_tokens) const {
  SamplingParams sampling = options_.sampling;
  sampling.max_new_tokens = max_new_tokens;
  sampling.min_new_tokens = std::min(sampling.min_new_tokens, max_new_tokens);
  sampling.stop_ids.insert(sampling.stop_ids.end(), request.stop_ids.begin(),
                           request.stop_ids.end());
  if (!request.stop.empty()) {
    sampling.stop_strings = std::make_shared<const StopStrings>(request.stop, tokenizer_);
  }
  sampling.top_logprobs = request.top_logprobs;
  return sampling;
}

absl::StatusOr<Session::Open> Session::Plan(const Recorded* recorded, SessionRequest request,
                                            std::vector<int32_t> first_prompt) {
  Open open;
  int64_t used = 0;
  if (recorded == nullptr) {
    if (first_prompt.empty()) return InvalidArgument("has no tokens");
    open.prompt = std::move(first_prompt);
  } else {
    FRESHET_RETURN_IF_ERROR(CheckRequest(*recorded, request));
    FRESHET_ASSIGN_OR_RETURN(open.appended, Appended(*recorded, request));
    used = std::ssize(recorded->prompt) + std::ssize(recorded->after.response_ids);
  }
  used += std::ssize(open.prompt) + std::ssize(open.appended);
  const int64_t left = options_.sampling.max_new_tokens - used;
  if (left < 1) {
    const MutexLock lock(mu_);
    exhausted_ = true;
    return InvalidArgument("the conversation has ", used, " tokens, which leaves none of the ",
                           options_.sampling.max_new_tokens,
                           " of its session (rollout.max_new_tokens)");
  }
  open.limited = !request.max_tokens.has_value() || *request.max_tokens >= left;
  open.limit = static_cast<int32_t>(open.limited ? left : *request.max_tokens);
  open.request = std::move(request);
  return open;
}

SessionTurn Session::MakeTurn(const Recorded* recorded, const Open& open) const {
  SessionTurn turn;
  GenerationRequest& generation = turn.generation;
  generation.lane = options_.lane;
  generation.seed = options_.seed;
  generation.ordinal = options_.ordinal;
  generation.sample_indices = {options_.sample_index};
  generation.prompt_ids = recorded == nullptr ? open.prompt : recorded->prompt;
  turn.prompt_ids = generation.prompt_ids;
  if (recorded != nullptr) {
    Response partial = recorded->after;
    AppendWithoutLoss(open.appended, partial);
    turn.prompt_ids.insert(turn.prompt_ids.end(), partial.response_ids.begin(),
                           partial.response_ids.end());
    generation.partials.push_back(std::move(partial));
  }
  const auto kept = static_cast<int32_t>(turn.prompt_ids.size() - generation.prompt_ids.size());
  generation.sampling = Sampling(open.request, kept + open.limit);
  return turn;
}

SessionTurn Session::Repeat(const Recorded& recorded) const {
  SessionTurn turn;
  turn.repeated = recorded.tokens;
  std::vector<int32_t>& stop_ids = turn.generation.sampling.stop_ids;
  stop_ids = options_.sampling.stop_ids;
  stop_ids.insert(stop_ids.end(), recorded.latest.stop_ids.begin(), recorded.latest.stop_ids.end());
  turn.prompt_ids = recorded.prompt;
  const std::vector<int32_t>& after = recorded.after.response_ids;
  turn.prompt_ids.insert(turn.prompt_ids.end(), after.begin(),
                         after.end() - std::ssize(recorded.tokens));
  return turn;
}

absl::StatusOr<SessionTurn> Session::Begin(SessionRequest request,
                                           std::vector<int32_t> first_prompt) {
  std::shared_ptr<const Recorded> recorded;
  bool repeats = false;
  {
    const MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(CheckOpen());
    recorded = recorded_;
    repeats =
        recorded != nullptr && !request.digest.empty() && request.digest == recorded->latest.digest;
    if (repeats && ++repeats_ > options_.max_repeats) {
      return InvalidArgument("the answer to this request was repeated ", options_.max_repeats,
                             " times already");
    }
    busy_ = !repeats;
  }
  if (repeats) return Repeat(*recorded);
  absl::StatusOr<Open> open = Plan(recorded.get(), std::move(request), std::move(first_prompt));
  std::optional<SessionTurn> turn;
  if (open.ok()) turn = MakeTurn(recorded.get(), *open);
  const MutexLock lock(mu_);
  if (open.ok() && closed_) {
    open = Ended();
  }
  if (!open.ok()) {
    busy_ = false;
    return open.status();
  }
  open_ = *std::move(open);
  return *std::move(turn);
}

void Session::Add(const GeneratedToken& token) {
  const MutexLock lock(mu_);
  if (open_.has_value()) open_->tokens.push_back(token);
}

void Session::End(const absl::Status& status, std::string answer) {
  const MutexLock lock(mu_);
  if (!open_.has_value()) return;
  Open open = *std::move(open_);
  open_.reset();
  on_closed_ = nullptr;
  busy_ = false;
  engine_error_ =
      absl::IsInternal(status) || absl::IsUnavailable(status) ? status : absl::OkStatus();
  if (!status.ok() || open.tokens.empty()) return;
  auto recorded =
      recorded_ == nullptr ? std::make_shared<Recorded>() : std::make_shared<Recorded>(*recorded_);
  if (recorded_ == nullptr) recorded->prompt = std::move(open.prompt);
  AppendWithoutLoss(open.appended, recorded->after);
  const bool truncates = options_.sampling.ChangesDistribution();
  for (const GeneratedToken& token : open.tokens) {
    AppendSampled(token, truncates, recorded->after);
  }
  exhausted_ |= open.limited && open.tokens.back().finish == FinishReason::kLength;
  recorded->latest = std::move(open.request);
  recorded->answer = std::move(answer);
  recorded->tokens = std::move(open.tokens);
  ++recorded->requests;
  repeats_ = 0;
  recorded_ = std::move(recorded);
}

void Session::OnClosed(std::function<void()> closed) {
  {
    const MutexLock lock(mu_);
    if (!closed_) {
      on_closed_ = std::move(closed);
      return;
    }
  }
  closed();
}

SessionRecord Session::Close() {
  std::function<void()> on_closed;
  SessionRecord record;
  {
    const MutexLock lock(mu_);
    closed_ = true;
    open_.reset();
    on_closed.swap(on_closed_);
    record.exhausted = exhausted_;
    record.engine_error = engine_error_;
    if (recorded_ != nullptr) {
      record.requests = recorded_->requests;
      record.response = WithPrompt(recorded_->prompt, recorded_->after);
    }
  }
  if (on_closed) on_closed();
  return record;
}

}  // namespace freshet
