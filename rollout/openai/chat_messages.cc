#include "rollout/openai/chat_messages.h"

#include <string>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::openai {
namespace {

// The string member `name`, or null.
const std::string* Text(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

absl::StatusOr<std::string> ContentText(const Json& content) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return InvalidArgument("content is not a text or a list of parts");
  std::string joined;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string* text = Text(content[i], "text");
    const std::string* type = Text(content[i], "type");
    if (text == nullptr || type == nullptr || *type != "text") {
      return InvalidArgument("content[", i, "] is ", Excerpt(content[i]),
                             "; only parts of type text are supported");
    }
    joined += (i == 0 ? "" : "\n") + *text;
  }
  return joined;
}

absl::Status ParseArguments(Json& calls) {
  if (!calls.is_array()) return InvalidArgument("tool_calls is not a list");
  for (size_t i = 0; i < calls.size(); ++i) {
    Json& call = calls[i];
    if (!call.is_object() || !call.contains("function") ||
        Text(call["function"], "name") == nullptr) {
      return InvalidArgument("tool_calls[", i, "] has no function with a name");
    }
    Json& function = call["function"];
    Json arguments = function.contains("arguments") ? function["arguments"] : Json();
    if (arguments.is_string()) {
      const std::string text = arguments.get<std::string>();
      const absl::StatusOr<Json> parsed = ParseOrderedJson(text.empty() ? "{}" : text, "arguments");
      if (!parsed.ok()) return InvalidArgument("tool_calls[", i, "]: ", Message(parsed.status()));
      arguments = *parsed;
    }
    if (arguments.is_null()) arguments = Json::object();
    if (!arguments.is_object()) {
      return InvalidArgument("tool_calls[", i, "]: arguments is ", Excerpt(arguments),
                             ", want an object");
    }
    function["arguments"] = std::move(arguments);
  }
  return absl::OkStatus();
}

absl::Status Normalize(Json& message) {
  if (Text(message, "role") == nullptr) return InvalidArgument("not an object with a role");
  FRESHET_ASSIGN_OR_RETURN(message["content"],
                           ContentText(message.contains("content") ? message["content"] : Json()));
  if (!message.contains("tool_calls")) return absl::OkStatus();
  // Templates ask whether the member is there.
  if (message["tool_calls"].is_null()) {
    message.erase("tool_calls");
    return absl::OkStatus();
  }
  return ParseArguments(message["tool_calls"]);
}

}  // namespace

absl::StatusOr<Json> TemplateMessages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return InvalidArgument("not a list of at least one message");
  }
  Json normal = messages;
  for (size_t i = 0; i < normal.size(); ++i) {
    const absl::Status status = Normalize(normal[i]);
    if (!status.ok()) return InvalidArgument("messages[", i, "]: ", Message(status));
  }
  return normal;
}

absl::Status CheckTools(const Json& tools) {
  if (!tools.is_array()) return InvalidArgument("not a list");
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string* type = Text(tools[i], "type");
    if (type == nullptr || *type != "function" || !tools[i].contains("function") ||
        Text(tools[i]["function"], "name") == nullptr) {
      return InvalidArgument("tools[", i, "] is not of type function with a name");
    }
  }
  return absl::OkStatus();
}

}  // namespace freshet::openai
