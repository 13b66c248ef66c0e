#ifndef FRESHET_MODEL_ADDED_TOKENS_H_
#define FRESHET_MODEL_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace freshet {

// A token that is found in the text as it is written, before the model sees the text.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;      // takes the white space after it
  bool normalized = false;  // looked for in the normalized text, not in the raw one
  bool special = false;     // left out by Decode(skip_special)
};

// A piece of a split text: an added token (id >= 0) or text between them (id < 0).
struct TextPiece {
  int32_t id = -1;
  size_t begin = 0;  // bytes
  size_t end = 0;
};

// Splits text at added tokens: leftmost first, then longest. Immutable once filled.
// Thread-compatible: const methods may run concurrently.
class AddedTokenMatcher {
 public:
  // `content` is what is looked for (not empty); of two equal contents the first one stays.
  void Add(std::string_view content, const AddedToken& token);

  // Pieces that cover `text` in order; none is empty. O(text.size() * longest token).
  std::vector<TextPiece> Split(std::string_view text) const;

 private:
  struct Entry {
    int32_t id;
    bool lstrip;
    bool rstrip;
  };

  // The longest token that starts at `at`: its entry and length, or null.
  const Entry* Match(std::string_view text, size_t at, size_t& length) const;

  // A trie over bytes: (node, byte) -> node; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::unordered_map<uint32_t, Entry> entries_;
  bool starts_token_[256] = {};
  uint32_t num_nodes_ = 1;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_ADDED_TOKENS_H_
