#ifndef FRESHET_TEXT_CHAR_TOKENIZER_H_
#define FRESHET_TEXT_CHAR_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer.h"

namespace freshet {

inline constexpr char kCharTokenizerEnd[] = "</s>";

// A tokenizer with one id per character: code points of `alphabet` (UTF-8) get ids 0..n-1 in order;
// id n is the end token "</s>" (eos; recognized in text like any special token). There is no bos.
// Encode fails on characters outside the alphabet and names them.
// INVALID_ARGUMENT: the alphabet is empty, not UTF-8, has duplicates or more than 65,536
// characters.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateCharTokenizer(std::string_view alphabet);

}  // namespace freshet

#endif  // FRESHET_TEXT_CHAR_TOKENIZER_H_
