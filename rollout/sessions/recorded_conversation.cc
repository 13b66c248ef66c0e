#include "rollout/sessions/recorded_conversation.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/json_document.h"
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

bool StartsWith(const std::vector<int32_t>& ids, const std::vector<int32_t>& start) {
  return ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
}

}  // namespace

size_t SizeOf(const SessionRequest& request) {
  return request.conversation.messages.size() + request.conversation.tools.size() +
         request.text.size() + request.ids.size() * sizeof(int32_t);
}

absl::Status CheckContinues(const RecordedConversation& recorded, const SessionRequest& request) {
  const SessionRequest& latest = *recorded.latest;
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
    if (StartsWith(request.ids, before)) return absl::OkStatus();
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

bool BeginsWith(const SessionRequest& earlier, const SessionRequest& later) {
  if (earlier.chat != later.chat) return false;
  if (!earlier.chat) {
    return SizeOf(earlier) < SizeOf(later) && later.text.starts_with(earlier.text) &&
           StartsWith(later.ids, earlier.ids);
  }
  const absl::StatusOr<nlohmann::json> before = ParseJson(earlier.conversation.messages, "");
  const absl::StatusOr<nlohmann::json> after = ParseJson(later.conversation.messages, "");
  return before.ok() && after.ok() && before->size() < after->size() &&
         std::equal(before->begin(), before->end(), after->begin());
}

absl::StatusOr<std::vector<int32_t>> AppendedIds(const Tokenizer& tokenizer,
                                                 const RecordedConversation& recorded,
                                                 const SessionRequest& request) {
  const SessionRequest& latest = *recorded.latest;
  const std::vector<int32_t>& after = recorded.after.response_ids;
  if (request.chat) {
    return EncodeAfter(tokenizer, request.conversation, NumMessages(latest.conversation.messages),
                       after.back());
  }
  if (!request.ids.empty()) {
    return std::vector<int32_t>(
        request.ids.begin() + std::ssize(recorded.prompt) + std::ssize(after), request.ids.end());
  }
  const size_t before = latest.text.size() + recorded.answer.size();
  return tokenizer.Encode(std::string_view(request.text).substr(before));
}

void AppendTurn(const std::vector<int32_t>& ids, const std::vector<GeneratedToken>& tokens,
                bool truncates, Response& response) {
  AppendWithoutLoss(ids, response);
  for (const GeneratedToken& token : tokens) AppendSampled(token, truncates, response);
}

}  // namespace freshet
