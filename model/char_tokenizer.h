#ifndef FRESHET_MODEL_CHAR_TOKENIZER_H_
#define FRESHET_MODEL_CHAR_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"

namespace freshet {

// The end token of a character tokenizer.
inline constexpr char kCharTokenizerEnd[] = "</s>";

// A tokenizer with one id per character: the code points of `alphabet` (UTF-8) are ids 0..n-1 in
// their order, and id n is the end token "</s>" (eos; recognised in the text like any special
// token). There is no bos. Encode fails on a character outside of the alphabet and names it.
// Returns INVALID_ARGUMENT: the alphabet is empty, not UTF-8, repeats a character or has more than
// 65,536 of them.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateCharTokenizer(std::string_view alphabet);

}  // namespace freshet

#endif  // FRESHET_MODEL_CHAR_TOKENIZER_H_
