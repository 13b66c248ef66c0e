#ifndef FRESHET_TEXT_CHAT_REQUEST_H_
#define FRESHET_TEXT_CHAT_REQUEST_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"

namespace freshet {

constexpr size_t kMaxChatBytes = size_t{16} << 20;

// A conversation and how to render it: the arguments of transformers' apply_chat_template. Members
// that hold JSON keep the order of names, which a template may print.
struct ChatRequest {
  std::string messages = "[]";          // JSON array of objects with `role` and `content`
  std::string tools = "null";           // JSON array of function schemas, or null
  std::string kwargs = "{}";            // JSON object: further variables, such as enable_thinking
  bool add_generation_prompt = false;   // end with the start of an assistant's message
  bool continue_final_message = false;  // end within the last message, for the model to continue
  absl::Time now = absl::UnixEpoch();   // for templates that print the date (UTC)
  size_t max_bytes = kMaxChatBytes;     // of the JSON above together, and of the rendered text
};

}  // namespace freshet

#endif  // FRESHET_TEXT_CHAT_REQUEST_H_
