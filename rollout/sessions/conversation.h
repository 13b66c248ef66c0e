#ifndef FRESHET_ROLLOUT_SESSIONS_CONVERSATION_H_
#define FRESHET_ROLLOUT_SESSIONS_CONVERSATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/tokenizer.h"

namespace freshet {

// How a conversation grows. Messages are JSON as in ChatRequest. Pure; thread-safe.

// OK if `messages` is `earlier`, then the answer to it, then at least one more message. Of the
// answer only the role, the content and the calls' names and arguments are compared.
// INVALID_ARGUMENT, naming the first message that differs.
absl::Status CheckAppended(const std::string& earlier, const std::string& answer,
                           const std::string& messages);

// The ids that follow the assistant's message number `answer` in the rendered conversation: the end
// of its turn, the later messages, and the start of the next answer. They do not depend on what the
// message says. `last` is its last token: if the model has ended its turn itself, the end is not
// repeated. Special tokens in messages are plain text.
// Returns:
//   INVALID_ARGUMENT: as Tokenizer::EncodeChat.
//   FAILED_PRECONDITION: the chat template changes the text of assistants, or a token spans the end
//   of the message and what follows it.
absl::StatusOr<std::vector<int32_t>> EncodeAfter(const Tokenizer& tokenizer, ChatRequest request,
                                                 size_t answer, int32_t last);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_CONVERSATION_H_
