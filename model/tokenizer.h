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

// One file of a tokenizer, as it lies in a Hugging Face directory.
struct TokenizerFile {
  std::string name;  // "tokenizer.json", "tokenizer_config.json", ...
  std::string content;
};

// Text to token ids and back. Immutable after construction. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text`. No special tokens are added; those written out in the text are recognised.
  // Returns INVALID_ARGUMENT, naming the character or the byte offset: the text is not UTF-8, or
  // holds a character that the vocabulary cannot express. Nothing is dropped silently.
  // O(n log n) in the length of the text.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;

  // Like Encode, with the special tokens around it that the tokenizer's own template adds (such as
  // a leading bos).
  virtual absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text) const = 0;

  // Text of `ids`, always valid UTF-8: each byte of a broken character becomes U+FFFD. Ids outside
  // of the vocabulary give nothing. `skip_special` leaves out special tokens.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;

  // One more than the largest id: what a model's vocab_size must at least be.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;

  // What a Hugging Face directory needs to hold this tokenizer. ParseTokenizer reads it back;
  // transformers' PreTrainedTokenizerFast loads it and gives the same ids.
  virtual const std::vector<TokenizerFile>& Files() const = 0;
};

// Makes a tokenizer from the contents of its files: tokenizer.json, and tokenizer_config.json for
// the bos and eos tokens (absent: neither). Other files are kept for Files(). `source` (the
// directory) starts every message.
// Returns:
//   NOT_FOUND: there is no tokenizer.json.
//   INVALID_ARGUMENT: broken JSON, inconsistent content, or a kind of model, normalizer,
//     pre-tokenizer, post-processor or decoder that is not supported (named).
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::vector<TokenizerFile> files,
                                                          const std::string& source);

// ParseTokenizer on the files in `directory`, each at most 64 MiB. Errors also as of DataRoots.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

}  // namespace freshet

#endif  // FRESHET_MODEL_TOKENIZER_H_
