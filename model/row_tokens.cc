#include "model/row_tokens.h"

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text) {
  return tokenizer.EncodeWithSpecial(text);
}

absl::StatusOr<std::vector<int32_t>> EncodeAnswer(
    const Tokenizer& tokenizer, const std::map<std::string, std::string>& attributes,
    const std::string& where) {
  const auto answer = attributes.find("answer");
  if (answer == attributes.end()) {
    return InvalidArgument(where, ": warmup.sft needs an answer; name its field in dataset.answer");
  }
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(answer->second);
  if (!ids.ok()) return InvalidArgument(where, ": answer: ", Message(ids.status()));
  if (tokenizer.eos_id().has_value()) ids->push_back(*tokenizer.eos_id());
  return ids;
}

}  // namespace freshet
