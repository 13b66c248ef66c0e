#include "rollout/worker/episode_conversation.h"

#include <cstddef>
#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/sessions/conversation.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// Never throws: broken UTF-8 becomes U+FFFD.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

EpisodeConversation::EpisodeConversation(const Tokenizer& tokenizer, ChatRequest row, Json messages)
    : tokenizer_(&tokenizer), request_(std::move(row)), messages_(std::move(messages)) {}

absl::StatusOr<EpisodeConversation> EpisodeConversation::Create(const Tokenizer& tokenizer,
                                                                ChatRequest row) {
  FRESHET_ASSIGN_OR_RETURN(Json messages, ParseOrderedJson(row.messages, "messages"));
  if (!messages.is_array()) return InvalidArgument("messages: not a list");
  return EpisodeConversation(tokenizer, std::move(row), std::move(messages));
}

absl::Status EpisodeConversation::Add(const EpisodeAnswer& answer) {
  if (!answer.observation.empty()) {
    if (!answer.messages.empty()) return InvalidArgument("both an observation and messages");
    messages_.push_back({{"role", "user"}, {"content", answer.observation}});
  }
  for (size_t i = 0; i < answer.messages.size(); ++i) {
    const EpisodeMessage& message = answer.messages[i];
    if (message.role != "system" && message.role != "user" && message.role != "tool") {
      return InvalidArgument("messages[", i, "]: role is '", message.role.substr(0, 64),
                             "', want system, user or tool");
    }
    Json& added = messages_.emplace_back(Json::object());
    added["role"] = message.role;
    added["content"] = message.content;
    if (!message.name.empty()) added["name"] = message.name;
    if (!message.tool_call_id.empty()) added["tool_call_id"] = message.tool_call_id;
  }
  return absl::OkStatus();
}

absl::Status EpisodeConversation::SetTools(const std::vector<std::string>& tools) {
  Json list = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(Json tool, ParseOrderedJson(tools[i], StrCat("tools[", i, "]")));
    if (!tool.is_object()) return InvalidArgument("tools[", i, "]: not a JSON object");
    list.push_back(std::move(tool));
  }
  request_.tools = Dump(list);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> EpisodeConversation::Start(const EpisodeAnswer& answer) {
  if (answer.new_context) messages_ = Json::array();
  FRESHET_RETURN_IF_ERROR(Add(answer));
  if (answer.new_context && messages_.empty()) {
    return InvalidArgument("a new context without messages");
  }
  if (!answer.tools.empty()) FRESHET_RETURN_IF_ERROR(SetTools(answer.tools));
  request_.messages = Dump(messages_);
  return tokenizer_->EncodeChat(request_);
}

absl::StatusOr<std::vector<int32_t>> EpisodeConversation::Append(const std::string& text,
                                                                 int32_t last,
                                                                 const EpisodeAnswer& answer) {
  if (!answer.tools.empty()) return InvalidArgument("tools after the reset");
  const size_t turn = messages_.size();
  messages_.push_back({{"role", "assistant"}, {"content", text}});
  FRESHET_RETURN_IF_ERROR(Add(answer));
  if (messages_.size() == turn + 1) {
    return InvalidArgument("neither messages nor the end of the episode");
  }
  request_.messages = Dump(messages_);
  return EncodeAfter(*tokenizer_, request_, turn, last);
}

}  // namespace freshet
