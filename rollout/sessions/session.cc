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

// Of what the latest request of each conversation says; each is parsed to see which one continues.
constexpr size_t kMaxSessionBytes = size_t{16} << 20;

size_t SizeOf(const SessionRequest& request) {
  return request.conversation.messages.size() + request.conversation.tools.size() +
         request.text.size() + request.ids.size() * sizeof(int32_t);
}

}  // namespace

absl::Status Session::CheckContinues(const Recorded& recorded, const SessionRequest& request) {
  const SessionRequest& latest = recorded.latest;
  if (request.chat != latest.chat) {
    return InvalidArgument("a session is either a chat or a completion, not both");
  }
  if (request.chat) {
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
  if (!request.ids.empty()) {
    std::vector<int32_t> before = recorded.prompt;
    const std::vector<int32_t>& after = recorded.after.response_ids;
    before.insert(before.end(), after.begin(), after.end());
    if (request.ids.size() >= before.size() &&
        std::equal(before.begin(), before.end(), request.ids.begin())) {
      return absl::OkStatus();
    }
    return InvalidArgument("does not begin with the ", before.size(),
                           " tokens of the session so far, which may only be appended to");
  }
  if (!latest.ids.empty()) {
    return InvalidArgument("is a text, but the session's earlier prompts are token ids");
  }
  const std::string before = latest.text + recorded.answer;
  if (request.text.starts_with(before)) return absl::OkStatus();
  return InvalidArgument("does not begin with the ", before.size(),
                         " bytes of the session so far, which may only be appended to");
}

Session::Session(SessionOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer) {}

absl::Status Session::Ended() {
  return absl::UnauthenticatedError("the session of this API key has ended");
}

absl::Status Session::CheckOpen() const {
  if (closed_) return Ended();
  if (busy_) {
    return absl::AbortedError("another request of this session runs: a session has one at a time");
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Session::Choose(const History& history, const SessionRequest& request) {
  const size_t count = history.conversations.size();
  if (count == 0) return size_t{0};
  absl::Status why = CheckContinues(*history.conversations[history.latest], request);
  if (why.ok()) return history.latest;
  if (options_.max_conversations == 1) return why;
  for (size_t i = count; i-- > 0;) {
    if (CheckContinues(*history.conversations[i], request).ok()) return i;
  }
  if (static_cast<int64_t>(count) < options_.max_conversations) return count;
  SetExhausted();
  return InvalidArgument("continues none of the ", count,
                         " conversations of the session, which are the most it may have "
                         "(environment.max_conversations); not the latest one, because: ",
                         Message(why));
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
    return std::vector<int32_t>(
        request.ids.begin() + std::ssize(recorded.prompt) + std::ssize(after), request.ids.end());
  }
  const size_t before = latest.text.size() + recorded.answer.size();
  return tokenizer_.Encode(std::string_view(request.text).substr(before));
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

void Session::SetExhausted() {
  const MutexLock lock(mu_);
  exhausted_ = true;
}

absl::StatusOr<Session::Open> Session::Plan(const History& history, SessionRequest request,
                                            FirstPrompt first_prompt) {
  if (history.requests >= options_.max_requests) {
    return InvalidArgument("the session has had its ", options_.max_requests, " requests");
  }
  size_t bytes = SizeOf(request);
  for (const auto& recorded : history.conversations) bytes += SizeOf(recorded->latest);
  if (history.conversations.size() > 1 && bytes > kMaxSessionBytes) {
    return InvalidArgument("the session's conversations have ", bytes, " bytes, more than ",
                           kMaxSessionBytes);
  }
  Open open;
  int64_t used = 0;
  FRESHET_ASSIGN_OR_RETURN(open.conversation, Choose(history, request));
  if (open.conversation == history.conversations.size()) {
    FRESHET_ASSIGN_OR_RETURN(open.prompt, first_prompt());
    if (open.prompt.empty()) return InvalidArgument("has no tokens");
  } else {
    const Recorded& recorded = *history.conversations[open.conversation];
    FRESHET_ASSIGN_OR_RETURN(open.appended, Appended(recorded, request));
    used = std::ssize(recorded.prompt) + std::ssize(recorded.after.response_ids);
  }
  used += std::ssize(open.prompt) + std::ssize(open.appended);
  const int64_t left = options_.sampling.max_new_tokens - used;
  if (left < 1) {
    SetExhausted();
    return InvalidArgument("the conversation has ", used, " tokens, which leaves none of the ",
                           options_.sampling.max_new_tokens,
                           " that it may have (rollout.max_new_tokens)");
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
  generation.seed = SegmentSeed(options_.seed, open.conversation);
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

absl::StatusOr<SessionTurn> Session::Begin(SessionRequest request, FirstPrompt first_prompt) {
  History history;
  std::shared_ptr<const Recorded> latest;
  bool repeats = false;
  {
    const MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(CheckOpen());
    history = history_;
    if (!history.conversations.empty()) latest = history.conversations[history.latest];
    repeats =
        latest != nullptr && !request.digest.empty() && request.digest == latest->latest.digest;
    if (repeats && ++repeats_ > options_.max_repeats) {
      return InvalidArgument("the answer to this request was repeated ", options_.max_repeats,
                             " times already");
    }
    busy_ = !repeats;
  }
  if (repeats) return Repeat(*latest);
  absl::StatusOr<Open> open = Plan(history, std::move(request), first_prompt);
  std::optional<SessionTurn> turn;
  if (open.ok()) {
    const bool begins = open->conversation == history.conversations.size();
    turn = MakeTurn(begins ? nullptr : history.conversations[open->conversation].get(), *open);
  }
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
  std::vector<std::shared_ptr<const Recorded>>& conversations = history_.conversations;
  const bool begins = open.conversation == conversations.size();
  if (begins) conversations.emplace_back();
  std::shared_ptr<const Recorded>& conversation = conversations[open.conversation];
  auto recorded = begins ? std::make_shared<Recorded>() : std::make_shared<Recorded>(*conversation);
  if (begins) recorded->prompt = std::move(open.prompt);
  AppendWithoutLoss(open.appended, recorded->after);
  const bool truncates = options_.sampling.ChangesDistribution();
  for (const GeneratedToken& token : open.tokens) {
    AppendSampled(token, truncates, recorded->after);
  }
  if (options_.max_conversations > 1) exhausted_ = false;
  exhausted_ |= open.limited && open.tokens.back().finish == FinishReason::kLength;
  recorded->latest = std::move(open.request);
  recorded->answer = std::move(answer);
  recorded->tokens = std::move(open.tokens);
  conversation = std::move(recorded);
  history_.latest = open.conversation;
  ++history_.requests;
  repeats_ = 0;
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
    record.requests = history_.requests;
    std::vector<Response> segments;
    segments.reserve(history_.conversations.size());
    for (const auto& recorded : history_.conversations) {
      segments.push_back(WithPrompt(recorded->prompt, recorded->after));
    }
    if (!segments.empty()) record.response = JoinSegments(std::move(segments));
  }
  if (on_closed) on_closed();
  return record;
}

}  // namespace freshet
