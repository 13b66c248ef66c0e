#ifndef FRESHET_TEXT_TOKENIZER_H_
#define FRESHET_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "text/chat_request.h"

namespace freshet {

// One tokenizer file of a Hugging Face directory.
struct TokenizerFile {
  std::string name;  // "tokenizer.json", "tokenizer_config.json", ...
  std::string content;
};

// What special tokens in a text become.
enum class SpecialTokens {
  kRecognized,  // their ids; for text that the model's own files define
  kPlain,       // the ids of their characters; for text of users, tools and environments
};

// Decodes a growing list of ids. Confined to one thread; the tokenizer must outlive it.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  // The text that `id` completes: empty while a character is incomplete. The pieces and the rest
  // that Finish returns, joined, equal Decode of all ids, unless their text has broken characters.
  virtual std::string Push(int32_t id) = 0;
  virtual std::string Finish() = 0;
};

// Converts between text and token ids. Immutable after construction. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Encodes `text` of at most 64 MiB, without adding special tokens. INVALID_ARGUMENT, naming the
  // character or byte offset: the text is not UTF-8 or has a character that the vocabulary cannot
  // express. Nothing is dropped silently. O(n log n) in the length of the text.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, SpecialTokens special = SpecialTokens::kRecognized) const = 0;

  // Like Encode, plus the special tokens of the tokenizer's template, such as a leading bos.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(
      std::string_view text, SpecialTokens special = SpecialTokens::kRecognized) const = 0;

  // Decodes `ids` to valid UTF-8: U+FFFD stands for broken characters. Ignores ids outside the
  // vocabulary. `skip_special` omits special tokens.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  virtual std::unique_ptr<StreamDecoder> MakeStreamDecoder(bool skip_special) const = 0;

  // Renders a conversation with the model's chat template, as transformers 5 does. Bounded: 2
  // million template steps, ChatRequest::max_bytes of text, 256 MiB of memory, 10 s.
  // Returns:
  //   FAILED_PRECONDITION: there is no chat template.
  //   UNAVAILABLE: ChatAvailable() is false.
  //   INVALID_ARGUMENT: malformed JSON, the message of the template's raise_exception, an error of
  //   the template with its line, or an exceeded bound.
  virtual absl::StatusOr<std::string> RenderChat(const ChatRequest& request) const = 0;
  // Ids of the rendered conversation. Special tokens within messages and tools are encoded as
  // SpecialTokens::kPlain: nobody whose text enters a conversation can end a turn or begin one.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatRequest& request) const = 0;

  // False if 4 templates have exceeded their time and still run, or have exceeded their memory,
  // which this process cannot free.
  virtual bool ChatAvailable() const = 0;

  // Bytes of the text that one token stands for, at most. Texts that a tokenizer normalizes may be
  // longer.
  virtual int64_t longest_token_bytes() const = 0;
  // Largest id + 1: the minimum vocab_size of a model.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;

  // Files of a Hugging Face directory with this tokenizer. ParseTokenizer reads them back;
  // transformers' PreTrainedTokenizerFast loads them and gives the same ids.
  virtual const std::vector<TokenizerFile>& Files() const = 0;
};

// Creates a tokenizer from the contents of tokenizer.json, which the tokenizers library reads;
// tokenizer_config.json, which names the bos and eos tokens (if absent, there are none); and the
// chat template, which is chat_template.jinja or in tokenizer_config.json. Other files are kept for
// Files(). Messages start with `source` (the directory).
// Returns:
//   NOT_FOUND: no tokenizer.json.
//   INVALID_ARGUMENT: malformed content; a bos, eos or added token of tokenizer_config.json that
//   tokenizer.json lacks or gives another id; an error in the chat template, with its line.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::vector<TokenizerFile> files,
                                                          const std::string& source);

// ParseTokenizer on the files in `directory`, at most 64 MiB each. Also returns errors of
// DataRoots.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

}  // namespace freshet

#endif  // FRESHET_TEXT_TOKENIZER_H_
