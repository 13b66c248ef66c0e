#include "rollout/sessions/session.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/sessions/whole_response.h"

namespace freshet {
namespace {

// Of what the latest request of each conversation says; each is parsed to see which one continues.
constexpr size_t kMaxSessionBytes = size_t{16} << 20;
// A request is planned without the lock. Another one may then continue the same conversation first,
// which happens rarely, and hardly ever twice.
constexpr int kMaxPlans = 8;

// Whether a request failed because of the engine rather than its client.
bool IsEngineFault(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsUnavailable(status);
}

}  // namespace

Session::Session(SessionOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer) {}

absl::Status Session::Ended() {
  return absl::UnauthenticatedError("the session of this API key has ended");
}

absl::Status Session::CheckMayBegin(const SessionRequest& request) {
  if (closed_) return Ended();
  if (options_.max_conversations == 1 && !open_.empty()) {
    return absl::AbortedError(
        "another request of this session runs: a session with one conversation has one at a time");
  }
  size_t bytes = SizeOf(request);
  for (const auto& [number, open] : open_) {
    if (!request.digest.empty() && open.request->digest == request.digest) {
      return absl::AbortedError("the same request of this session runs already");
    }
    bytes += SizeOf(*open.request);
  }
  if (FindAnswered(request.digest) != nullptr) return absl::OkStatus();
  if (answered_ + failed_ + std::ssize(open_) >= options_.max_requests) {
    return InvalidArgument("the session has had its ", options_.max_requests, " requests");
  }
  if (tokens_ >= options_.max_tokens) {
    Refused(EpisodeLimit::kEpisodeTokens);
    return InvalidArgument("the episode has generated its ", options_.max_tokens,
                           " tokens (environment.max_episode_tokens)");
  }
  for (const auto& [number, conversation] : conversations_) {
    if (conversation.recorded != nullptr) bytes += SizeOf(*conversation.recorded->latest);
  }
  if (conversations_.size() > 1 && bytes > kMaxSessionBytes) {
    return InvalidArgument("the session's conversations have ", bytes, " bytes, more than ",
                           kMaxSessionBytes);
  }
  return absl::OkStatus();
}

Session::Conversation* Session::FindAnswered(const std::string& digest) {
  if (digest.empty()) return nullptr;
  for (auto& [number, conversation] : conversations_) {
    if (conversation.recorded != nullptr && conversation.recorded->latest->digest == digest) {
      return &conversation;
    }
  }
  return nullptr;
}

Session::View Session::MakeView() const {
  View view;
  view.latest = latest_;
  view.count = conversations_.size();
  view.tokens_left = options_.max_tokens - tokens_;
  for (const auto& [number, conversation] : conversations_) {
    if (!conversation.open) view.free.emplace(number, conversation.recorded);
  }
  for (const auto& [number, open] : open_) {
    if (!open.tokens.empty() && open.tokens.back().finish != FinishReason::kNone) {
      view.ending.push_back(open.request);
    }
  }
  return view;
}

absl::StatusOr<std::optional<size_t>> Session::Choose(const View& view,
                                                      const SessionRequest& request) {
  if (view.count == 0) return std::nullopt;
  absl::Status why = absl::OkStatus();
  const auto latest = view.free.find(view.latest);
  if (latest != view.free.end()) {
    why = CheckContinues(*latest->second, request);
    if (why.ok()) return view.latest;
    if (options_.max_conversations == 1) return why;
  }
  for (auto it = view.free.rbegin(); it != view.free.rend(); ++it) {
    if (CheckContinues(*it->second, request).ok()) return it->first;
  }
  for (const std::shared_ptr<const SessionRequest>& ending : view.ending) {
    if (BeginsWith(*ending, request)) {
      return absl::AbortedError("the answer that this request repeats is not yet recorded");
    }
  }
  if (static_cast<int64_t>(view.count) < options_.max_conversations) return std::nullopt;
  const MutexLock lock(mu_);
  Refused(EpisodeLimit::kConversations);
  return InvalidArgument("continues none of the ", view.count,
                         " conversations of the session, which are the most it may have "
                         "(environment.max_conversations)",
                         why.ok() ? "" : "; not the latest one, because: ", Message(why));
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

absl::StatusOr<Session::Plan> Session::MakePlan(const View& view,
                                                std::shared_ptr<const SessionRequest> request,
                                                FirstPrompt first_prompt) {
  Plan plan;
  Open& open = plan.open;
  int64_t used = 0;
  FRESHET_ASSIGN_OR_RETURN(plan.conversation, Choose(view, *request));
  if (plan.conversation.has_value()) {
    plan.recorded = view.free.at(*plan.conversation);
    FRESHET_ASSIGN_OR_RETURN(open.appended, AppendedIds(tokenizer_, *plan.recorded, *request));
    used = std::ssize(plan.recorded->prompt) + std::ssize(plan.recorded->after.response_ids);
  } else {
    FRESHET_ASSIGN_OR_RETURN(open.prompt, first_prompt());
    if (open.prompt.empty()) return InvalidArgument("has no tokens");
  }
  used += std::ssize(open.prompt) + std::ssize(open.appended);
  const int64_t left = options_.sampling.max_new_tokens - used;
  if (left < 1) {
    const MutexLock lock(mu_);
    Refused(EpisodeLimit::kTokens);
    return InvalidArgument("the conversation has ", used, " tokens, which leaves none of the ",
                           options_.sampling.max_new_tokens,
                           " that it may have (rollout.max_new_tokens)");
  }
  open.limited = !request->max_tokens.has_value() || *request->max_tokens >= left;
  const int64_t most = open.limited ? left : *request->max_tokens;
  open.cut = view.tokens_left < most;
  open.limit = static_cast<int32_t>(std::min(most, view.tokens_left));
  open.request = std::move(request);
  plan.turn = MakeTurn(plan.recorded.get(), open);
  return plan;
}

SessionTurn Session::MakeTurn(const RecordedConversation* recorded, const Open& open) const {
  SessionTurn turn;
  GenerationRequest& generation = turn.generation;
  generation.lane = options_.lane;
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
  generation.sampling = Sampling(*open.request, kept + open.limit);
  return turn;
}

SessionTurn Session::Repeat(const RecordedConversation& recorded) const {
  SessionTurn turn;
  turn.repeated = recorded.tokens;
  std::vector<int32_t>& stop_ids = turn.generation.sampling.stop_ids;
  stop_ids = options_.sampling.stop_ids;
  const std::vector<int32_t>& own = recorded.latest->stop_ids;
  stop_ids.insert(stop_ids.end(), own.begin(), own.end());
  turn.prompt_ids = recorded.prompt;
  const std::vector<int32_t>& after = recorded.after.response_ids;
  turn.prompt_ids.insert(turn.prompt_ids.end(), after.begin(),
                         after.end() - std::ssize(recorded.tokens));
  return turn;
}

absl::StatusOr<SessionTurn> Session::Begin(SessionRequest request, FirstPrompt first_prompt) {
  const auto asked = std::make_shared<const SessionRequest>(std::move(request));
  for (int i = 0; i < kMaxPlans; ++i) {
    View view;
    std::shared_ptr<const RecordedConversation> answered;
    {
      const MutexLock lock(mu_);
      FRESHET_RETURN_IF_ERROR(CheckMayBegin(*asked));
      if (Conversation* const found = FindAnswered(asked->digest); found != nullptr) {
        if (++found->repeats > options_.max_repeats) {
          return InvalidArgument("the answer to this request was repeated ", options_.max_repeats,
                                 " times already");
        }
        answered = found->recorded;
      } else {
        view = MakeView();
      }
    }
    if (answered != nullptr) return Repeat(*answered);
    FRESHET_ASSIGN_OR_RETURN(Plan plan, MakePlan(view, asked, first_prompt));
    const MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(CheckMayBegin(*asked));
    // Its answer may have been recorded since.
    if (FindAnswered(asked->digest) == nullptr && Commit(plan)) return std::move(plan.turn);
  }
  return absl::AbortedError("too many requests of this session begin at the same time");
}

bool Session::Commit(Plan& plan) {
  size_t number = 0;
  if (plan.conversation.has_value()) {
    number = *plan.conversation;
    const Conversation& conversation = conversations_.at(number);
    if (conversation.open || conversation.recorded != plan.recorded) return false;
  } else {
    if (std::ssize(conversations_) >= options_.max_conversations) return false;
    while (conversations_.contains(number)) ++number;
  }
  conversations_[number].open = true;
  plan.open.conversation = number;
  plan.turn.generation.seed = SegmentSeed(options_.seed, number);
  plan.turn.request = ++begun_;
  open_.emplace(begun_, std::move(plan.open));
  return true;
}

bool Session::Add(int64_t request, const GeneratedToken& token) {
  const MutexLock lock(mu_);
  const auto found = open_.find(request);
  if (found == open_.end()) return true;
  Open& open = found->second;
  open.tokens.push_back(token);
  if (++tokens_ < options_.max_tokens || token.finish == FinishReason::kStop) return true;
  open.cut = true;
  open.tokens.back().finish = FinishReason::kLength;
  return token.finish == FinishReason::kLength;
}

void Session::Refused(EpisodeLimit limit) { SetLimit(++begun_, limit); }

void Session::SetLimit(int64_t request, std::optional<EpisodeLimit> limit) {
  if (limit == EpisodeLimit::kEpisodeTokens) cut_ = true;
  if (request < limit_of_) return;
  limit_of_ = request;
  if (limit.has_value() || options_.max_conversations > 1) limit_ = limit;
}

void Session::SetEngineError(int64_t request, const absl::Status& status) {
  if (IsEngineFault(status)) {
    engine_error_ = status;
    failed_before_ = begun_;
  } else if (request > failed_before_) {
    engine_error_ = absl::OkStatus();
  }
}

void Session::End(int64_t request, const absl::Status& status, std::string answer) {
  const MutexLock lock(mu_);
  auto node = open_.extract(request);
  if (node.empty()) return;
  Open& open = node.mapped();
  Conversation& conversation = conversations_.at(open.conversation);
  conversation.open = false;
  SetEngineError(request, status);
  if (!status.ok() || open.tokens.empty()) {
    // If it was the client who left, its tokens count: it may have read them in a stream.
    if (IsEngineFault(status)) tokens_ -= std::ssize(open.tokens);
    if (!open.tokens.empty()) ++failed_;
    if (conversation.recorded == nullptr) conversations_.erase(open.conversation);
    return;
  }
  const bool begins = conversation.recorded == nullptr;
  auto recorded = begins ? std::make_shared<RecordedConversation>()
                         : std::make_shared<RecordedConversation>(*conversation.recorded);
  if (begins) recorded->prompt = std::move(open.prompt);
  AppendTurn(open.appended, open.tokens, options_.sampling.ChangesDistribution(), recorded->after);
  std::optional<EpisodeLimit> limit;
  if (open.tokens.back().finish == FinishReason::kLength) {
    if (open.limited) limit = EpisodeLimit::kTokens;
    if (open.cut) limit = EpisodeLimit::kEpisodeTokens;
  }
  SetLimit(request, limit);
  recorded->latest = std::move(open.request);
  recorded->answer = std::move(answer);
  recorded->tokens = std::move(open.tokens);
  conversation.recorded = std::move(recorded);
  conversation.repeats = 0;
  latest_ = open.conversation;
  ++answered_;
}

void Session::OnClosed(int64_t request, std::function<void()> closed) {
  {
    const MutexLock lock(mu_);
    const auto found = open_.find(request);
    if (found != open_.end()) found->second.on_closed = std::move(closed);
    if (!closed_) return;
  }
  closed();
}

SessionRecord Session::Close() {
  std::map<int64_t, Open> open;
  SessionRecord record;
  {
    const MutexLock lock(mu_);
    closed_ = true;
    open.swap(open_);
    record.limit = cut_ ? EpisodeLimit::kEpisodeTokens : limit_;
    record.engine_error = engine_error_;
    record.requests = answered_;
    std::vector<Response> segments;
    segments.reserve(conversations_.size());
    for (const auto& [number, conversation] : conversations_) {
      if (conversation.recorded == nullptr) continue;
      segments.push_back(WithPrompt(conversation.recorded->prompt, conversation.recorded->after));
    }
    if (!segments.empty()) record.response = JoinSegments(std::move(segments));
  }
  for (const auto& [number, request] : open) {
    if (request.on_closed) request.on_closed();
  }
  return record;
}

}  // namespace freshet
