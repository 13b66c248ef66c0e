#ifndef FRESHET_MODEL_TOKENIZER_H_
#define FRESHET_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"

namespace freshet {

// One tokenizer file of a Hugging Face directory.
struct TokenizerFile {
  std::string name;  // "tokenizer.json", "tokenizer_config.json", ...
  std::string content;
};

// Converts between text and token ids. Immutable after construction. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Encodes `text`. Adds no special tokens, but recognizes those in the text. INVALID_ARGUMENT,
  // naming the character or byte offset: the text is not UTF-8 or has a character that the
  // vocabulary cannot express. Nothing is dropped silently. O(n log n) in the length of the text.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;

  // Like Encode, plus the special tokens of the tokenizer's template, such as a leading bos.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text) const = 0;

  // Decodes `ids` to valid UTF-8: each byte of a broken character becomes U+FFFD. Ignores ids
  // outside the vocabulary. `skip_special` omits special tokens.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;

  // Largest id + 1: the minimum vocab_size of a model.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;

  // Files of a Hugging Face directory with this tokenizer. ParseTokenizer reads them back;
  // transformers' PreTrainedTokenizerFast loads them and gives the same ids.
  virtual const std::vector<TokenizerFile>& Files() const = 0;
};

// Creates a tokenizer from the contents of tokenizer.json and tokenizer_config.json, which defines
// the bos and eos tokens (if absent, there are none). Other files are kept for Files(). Messages
// start with `source` (the directory).
// Returns:
//   NOT_FOUND: no tokenizer.json.
//   INVALID_ARGUMENT: malformed JSON, inconsistent content, or an unsupported kind of model,
//     normalizer, pre-tokenizer, post-processor or decoder (named).
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::vector<TokenizerFile> files,
                                                          const std::string& source);

// ParseTokenizer on the files in `directory`, at most 64 MiB each. Also returns errors of
// DataRoots.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

}  // namespace freshet

#endif  // FRESHET_MODEL_TOKENIZER_H_
