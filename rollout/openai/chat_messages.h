#ifndef FRESHET_ROLLOUT_OPENAI_CHAT_MESSAGES_H_
#define FRESHET_ROLLOUT_OPENAI_CHAT_MESSAGES_H_

#include "absl/status/statusor.h"
#include "rollout/openai/body_members.h"

namespace freshet::openai {

// The messages of a request as chat templates expect them, which is what vLLM passes: content that
// is a list of text parts is joined by newlines, null content is "", and the arguments of tool
// calls are objects. Other members stay. INVALID_ARGUMENT, naming the message by its index: no list
// of objects with a role; content that is not text; arguments that are not an object.
absl::StatusOr<Json> TemplateMessages(const Json& messages);

// INVALID_ARGUMENT, naming the tool by its index: not a list of {"type": "function", "function":
// {"name", ...}}.
absl::Status CheckTools(const Json& tools);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_CHAT_MESSAGES_H_
