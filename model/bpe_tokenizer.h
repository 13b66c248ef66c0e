#ifndef FRESHET_MODEL_BPE_TOKENIZER_H_
#define FRESHET_MODEL_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/added_tokens.h"
#include "model/token_decoder.h"
#include "model/tokenizer.h"

namespace freshet {

// Largest allowed id, eight times that of the largest known vocabulary.
inline constexpr int32_t kMaxTokenId = (1 << 21) - 1;

// One step of normalization.
struct NormalizeStep {
  enum class Kind {
    kPrepend,  // prepends `content` to non-empty text
    kReplace,  // replaces `pattern` with `content`
  };
  Kind kind = Kind::kReplace;
  std::string pattern;
  std::string content;
};

// Metaspace pre-tokenizer: replaces spaces with `replacement`, prepends it according to `scheme`
// (unless the text already starts with it) and, if `split`, cuts the text before each one.
struct MetaspaceRule {
  enum class Scheme { kFirst, kAlways, kNever };
  std::string replacement;
  Scheme scheme = Scheme::kAlways;  // kFirst: only at the start of the whole text
  bool split = true;
};

// A BPE tokenizer as described by tokenizer.json.
struct BpeSpec {
  std::unordered_map<std::string, int32_t> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       // a run of unknown characters becomes one unk
  bool byte_fallback = false;  // unknown characters become their bytes "<0xHH>"
  bool ignore_merges = false;  // a word in the vocabulary is not split
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizeStep> normalizer;
  std::vector<MetaspaceRule> pre_tokenizer;
  std::optional<std::vector<DecodeStep>> decoder;  // absent: tokens are joined with spaces
  std::vector<int32_t> prefix_ids;                 // added by EncodeWithSpecial
  std::vector<int32_t> suffix_ids;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::vector<TokenizerFile> files;
};

// Byte-pair encoding over Unicode characters, compatible with the tokenizers library, except that a
// character without a token or fallback is an error instead of being dropped. Thread-safe.
class BpeTokenizer final : public Tokenizer {
 public:
  // Messages start with `source`. INVALID_ARGUMENT: inconsistent spec (a duplicate or out-of-range
  // id; an unknown token in a merge, unk, bos, eos or the template).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(BpeSpec spec, const std::string& source);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text) const override;
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }
  const std::vector<TokenizerFile>& Files() const override { return spec_.files; }

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;  // of the merged piece
  };
  struct Piece {
    std::string text;
    bool known = false;  // false: unused id
    bool special = false;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const;
  };

  explicit BpeTokenizer(BpeSpec spec) : spec_(std::move(spec)) {}
  absl::Status IndexVocab(const std::string& source);
  absl::Status IndexAddedTokens(const std::string& source);
  absl::Status IndexMerges(const std::string& source);
  absl::Status ResolveNamedTokens(const std::string& source);
  absl::Status AddPiece(int32_t id, const std::string& text, const std::string& source);

  std::optional<int32_t> Find(const std::string& text) const;
  std::string Normalize(std::string_view text) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  // Encodes text without added tokens. `first`: it starts the whole text.
  absl::Status EncodeText(std::string text, bool first, std::vector<int32_t>& ids) const;
  absl::Status EncodeWord(const std::string& word, std::vector<int32_t>& ids) const;
  // Ids of the characters of `word`, before merging.
  absl::StatusOr<std::vector<int32_t>> CharIds(const std::string& word) const;
  // Byte ids of one character; empty if a byte has no token.
  std::vector<int32_t> ByteIds(std::string_view bytes) const;
  void MergeInto(const std::vector<int32_t>& chars, std::vector<int32_t>& ids) const;

  BpeSpec spec_;
  std::vector<Piece> pieces_;  // by id
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  std::vector<int32_t> byte_ids_;  // of "<0x00>".."<0xFF>"; -1: absent
  std::optional<int32_t> unk_id_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_BPE_TOKENIZER_H_
