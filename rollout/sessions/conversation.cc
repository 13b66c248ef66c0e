#include "rollout/sessions/conversation.h"

#include <memory>
#include <utility>

#include "base/digest.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

Json Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// What an assistant's message says, in one form.
Json Said(const Json& message) {
  Json said = {{"role", Member(message, "role")},
               {"content", TextOf(Member(message, "content"))},
               {"calls", Json::array()}};
  const Json calls = Member(message, "tool_calls");
  if (!calls.is_array()) return said;
  for (const Json& call : calls) {
    const Json function = Member(call, "function");
    Json arguments = Member(function, "arguments");
    if (arguments.is_string()) {
      absl::StatusOr<Json> parsed = ParseJson(TextOf(arguments), "arguments");
      if (parsed.ok()) arguments = *std::move(parsed);
    }
    said["calls"].push_back({{"name", Member(function, "name")}, {"arguments", arguments}});
  }
  return said;
}

// A text without spaces that no message contains.
std::string Marker(const std::string& messages) {
  return StrCat("answer", Hex64(Xxh3(messages.data(), messages.size(), 1)),
                Hex64(Xxh3(messages.data(), messages.size(), 2)));
}

}  // namespace

absl::Status CheckAppended(const std::string& earlier, const std::string& answer,
                           const std::string& messages) {
  FRESHET_ASSIGN_OR_RETURN(const Json before, ParseJson(earlier, "messages"));
  FRESHET_ASSIGN_OR_RETURN(const Json said, ParseJson(answer, "answer"));
  FRESHET_ASSIGN_OR_RETURN(const Json now, ParseJson(messages, "messages"));
  const size_t kept = before.size();
  for (size_t i = 0; i < kept && i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    return InvalidArgument("messages[", i,
                           "] differs from the earlier request: the conversation of a session may "
                           "only be appended to");
  }
  if (now.size() < kept + 2) {
    return InvalidArgument("has ", now.size(), " messages, want the earlier ", kept,
                           ", the answer to them and at least one more: the conversation of a "
                           "session may only be appended to");
  }
  if (Said(now[kept]) == Said(said)) return absl::OkStatus();
  return InvalidArgument("messages[", kept,
                         "] is not the answer that was given: the conversation of a session may "
                         "only be appended to");
}

absl::StatusOr<std::vector<int32_t>> EncodeAfter(const Tokenizer& tokenizer, ChatRequest request,
                                                 size_t answer, int32_t last) {
  FRESHET_ASSIGN_OR_RETURN(nlohmann::ordered_json messages,
                           ParseOrderedJson(request.messages, "messages"));
  if (!messages.is_array() || answer >= messages.size()) {
    return InvalidArgument("there is no message ", answer);
  }
  const std::string marker = Marker(request.messages);
  messages[answer] = {{"role", "assistant"}, {"content", marker}};
  request.messages = messages.dump();
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.EncodeChat(request));
  const std::unique_ptr<StreamDecoder> decoder =
      tokenizer.MakeStreamDecoder(/*skip_special=*/false);
  std::string text;  // ends with the decoded text; shorter than the marker before the latest token
  for (size_t i = 0; i < ids.size(); ++i) {
    text += decoder->Push(ids[i]);
    const size_t at = text.find(marker);
    if (at != std::string::npos) {
      if (at + marker.size() == text.size()) {
        const bool ended = i + 1 < ids.size() && ids[i + 1] == last;
        return std::vector<int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(i) + (ended ? 2 : 1),
                                    ids.end());
      }
      return FailedPrecondition(
          "the end of an assistant's message and what the chat template writes after it share a "
          "token");
    }
    if (text.size() >= marker.size()) text.erase(0, text.size() - marker.size() + 1);
  }
  return FailedPrecondition("the chat template does not write an assistant's content as it is");
}

}  // namespace freshet
