#ifndef FRESHET_ROLLOUT_SESSIONS_RECORDED_CONVERSATION_H_
#define FRESHET_ROLLOUT_SESSIONS_RECORDED_CONVERSATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory.h"
#include "rollout/engine/inference_engine.h"
#include "text/tokenizer.h"

namespace freshet {

// A request of a session.
struct SessionRequest {
  bool chat = false;
  ChatRequest conversation;           // of a chat
  std::string text;                   // of a completion: the prompt, or
  std::vector<int32_t> ids;           // its ids
  std::optional<int32_t> max_tokens;  // absent: what the conversation has left
  std::vector<int32_t> stop_ids;      // in addition to those of the session
  std::vector<std::string> stop;      // likewise
  int32_t top_logprobs = 0;
  std::string digest;  // of all that the client sent; "": unknown
};

// Bytes of what it says.
size_t SizeOf(const SessionRequest& request);

// What a conversation has so far.
struct RecordedConversation {
  std::shared_ptr<const SessionRequest> latest;  // answered request
  std::string answer;                            // to it
  std::vector<GeneratedToken> tokens;            // of the answer
  std::vector<int32_t> prompt;                   // of the first request
  Response after;                                // everything after it
};

// The functions are pure and thread-safe.

// OK if `request` repeats the conversation and appends to it. INVALID_ARGUMENT: why it does not.
absl::Status CheckContinues(const RecordedConversation& recorded, const SessionRequest& request);

// Whether `later` begins with what `earlier` says, so that it may continue it after its answer.
bool BeginsWith(const SessionRequest& earlier, const SessionRequest& later);

// The ids that `request`, which continues the conversation, appends to it. Errors as EncodeAfter.
absl::StatusOr<std::vector<int32_t>> AppendedIds(const Tokenizer& tokenizer,
                                                 const RecordedConversation& recorded,
                                                 const SessionRequest& request);

// Appends `ids` without loss, then sampled tokens; with their sampling log-probs if `truncates`.
void AppendTurn(const std::vector<int32_t>& ids, const std::vector<GeneratedToken>& tokens,
                bool truncates, Response& response);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_RECORDED_CONVERSATION_H_
