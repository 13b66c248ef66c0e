#ifndef FRESHET_MODEL_ROW_TOKENS_H_
#define FRESHET_MODEL_ROW_TOKENS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"

namespace freshet {

// Token ids of a dataset row's texts. Pure; thread-safe.

// Ids of a prompt, including the special tokens that the tokenizer adds. Errors: see
// Tokenizer::Encode.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text);

// Ids of the row's gold answer (attribute "answer"), followed by the end token if there is one.
// INVALID_ARGUMENT, starting with `where`: no answer, or it cannot be encoded.
absl::StatusOr<std::vector<int32_t>> EncodeAnswer(
    const Tokenizer& tokenizer, const std::map<std::string, std::string>& attributes,
    const std::string& where);

}  // namespace freshet

#endif  // FRESHET_MODEL_ROW_TOKENS_H_
