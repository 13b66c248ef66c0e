#ifndef FRESHET_ROLLOUT_WORKER_EPISODE_CONVERSATION_H_
#define FRESHET_ROLLOUT_WORKER_EPISODE_CONVERSATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "rollout/environment/environment_client.h"
#include "text/tokenizer.h"

namespace freshet {

// The conversation of one episode whose observations are messages: those of the row, those of the
// environment's reset, then a turn of the policy and the environment's messages in alternation. The
// environment may replace all of it.
// Special tokens in messages and tools are plain text. After an error it is useless. Confined to
// one thread.
class EpisodeConversation {
 public:
  // `row` holds the row's messages and tools. `tokenizer` must outlive the conversation.
  static absl::StatusOr<EpisodeConversation> Create(const Tokenizer& tokenizer, ChatRequest row);

  // Ids of the whole prompt, up to the next turn: after a reset, or in a new context, for which the
  // answer's messages replace all earlier ones. Tools of the environment replace earlier ones. Call
  // it first. Errors of this and Append:
  //   INVALID_ARGUMENT, naming the message by its index: a role other than system, user and tool,
  //   texts that the template refuses, or an answer from which no turn follows.
  //   Others: as EncodeAfter.
  absl::StatusOr<std::vector<int32_t>> Start(const EpisodeAnswer& answer);
  // Ids between a turn and the next one. The turn says `text`, and its last token is `last`; it is
  // not tokenized.
  absl::StatusOr<std::vector<int32_t>> Append(const std::string& text, int32_t last,
                                              const EpisodeAnswer& answer);

 private:
  EpisodeConversation(const Tokenizer& tokenizer, ChatRequest row, nlohmann::ordered_json messages);

  absl::Status Add(const EpisodeAnswer& answer);
  absl::Status SetTools(const std::vector<std::string>& tools);

  const Tokenizer* tokenizer_;
  ChatRequest request_;  // its messages are those that were last rendered
  nlohmann::ordered_json messages_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_EPISODE_CONVERSATION_H_
