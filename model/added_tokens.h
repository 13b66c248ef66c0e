#ifndef FRESHET_MODEL_ADDED_TOKENS_H_
#define FRESHET_MODEL_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace freshet {

// A token that is matched literally in the text before the BPE model runs.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool lstrip = false;      // consumes the white space before it
  bool rstrip = false;      // consumes the white space after it
  bool normalized = false;  // matched in the normalized text, not in the raw text
  bool special = false;     // omitted by Decode(skip_special)
};

// A piece of a split text: an added token (id >= 0) or the text between added tokens (id < 0).
struct TextPiece {
  int32_t id = -1;
  size_t begin = 0;  // bytes
  size_t end = 0;
};

// Splits text at added tokens: leftmost first, then longest. Immutable once filled.
// Thread-compatible: const methods may run concurrently.
class AddedTokenMatcher {
 public:
  // `content` is the text to match, not empty. Of two equal contents the first is kept.
  void Add(std::string_view content, const AddedToken& token);

  // Returns non-empty pieces that cover `text` in order. O(text.size() * longest token).
  std::vector<TextPiece> Split(std::string_view text) const;

 private:
  struct Entry {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };

  // The longest token that starts at `at`, and its length; null if there is none.
  const Entry* Match(std::string_view text, size_t at, size_t& length) const;

  // Byte trie: (node, byte) -> node; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::unordered_map<uint32_t, Entry> entries_;
  bool starts_token_[256] = {};
  uint32_t num_nodes_ = 1;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_ADDED_TOKENS_H_
