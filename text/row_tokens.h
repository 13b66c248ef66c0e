#ifndef FRESHET_TEXT_ROW_TOKENS_H_
#define FRESHET_TEXT_ROW_TOKENS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "text/tokenizer.h"

namespace freshet {

// Token ids of a dataset row's texts. Pure; thread-safe.

// The conversation of a row: `prompt` is a JSON object with `messages` and
// perhaps `tools` (dataset/row_builder). It ends with the start of an assistant's message.
// INVALID_ARGUMENT: it is anything else.
absl::StatusOr<ChatRequest> MakeConversation(const job::v1::Chat& chat, const std::string& prompt);

// Ids of a row's prompt. Plain text: with the special tokens that the tokenizer adds. With
// dataset.chat: as MakeConversation. Errors: see Tokenizer::EncodeWithSpecial and EncodeChat.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const job::v1::Dataset& dataset,
                                                  const std::string& prompt);

// Ids of the row's gold answer (attribute "answer"), followed by the end token if there is one.
// With dataset.chat, special tokens in it are encoded like any other text. INVALID_ARGUMENT,
// starting with `where`: no answer, or it cannot be encoded.
absl::StatusOr<std::vector<int32_t>> EncodeAnswer(
    const Tokenizer& tokenizer, const job::v1::Dataset& dataset,
    const std::map<std::string, std::string>& attributes, const std::string& where);

}  // namespace freshet

#endif  // FRESHET_TEXT_ROW_TOKENS_H_
