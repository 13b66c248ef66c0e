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

// The largest id: eight times that of the largest vocabulary known.
inline constexpr int32_t kMaxTokenId = (1 << 21) - 1;

// One step of normalization.
struct NormalizeStep {
  enum class Kind {
    kPrepend,  // `content` before a text that is not empty
    kReplace,  // `pattern` by `content`
  };
  Kind kind = Kind::kReplace;
  std::string pattern;
  std::string content;
};

// The Metaspace pre-tokenizer: spaces become `replacement`, which is put before the text as the
// scheme says (never before one that starts with it), and the text is cut before each when `split`.
struct MetaspaceRule {
  enum class Scheme { kFirst, kAlways, kNever };
  std::string replacement;
  Scheme scheme = Scheme::kAlways;  // kFirst: only where the piece is the start of the whole text
  bool split = true;
};

// What tokenizer.json says of a BPE tokenizer.
struct BpeSpec {
  std::unordered_map<std::string, int32_t> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       // a run of unknown characters becomes one unk
  bool byte_fallback = false;  // unknown characters become their bytes "<0xHH>"
  bool ignore_merges = false;  // a word in the vocabulary is taken whole
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizeStep> normalizer;
  std::vector<MetaspaceRule> pre_tokenizer;
  std::optional<std::vector<DecodeStep>> decoder;  // absent: tokens are joined by spaces
  std::vector<int32_t> prefix_ids;                 // added by EncodeWithSpecial
  std::vector<int32_t> suffix_ids;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::vector<TokenizerFile> files;
};

// Byte-pair encoding over Unicode characters, as the tokenizers library does it. Differences: a
// character that neither the vocabulary nor a fallback can express is an error here, and is dropped
// there. Thread-safe.
class BpeTokenizer final : public Tokenizer {
 public:
  // `source` starts every message. Returns INVALID_ARGUMENT: the parts contradict each other (an id
  // taken twice or out of range, a merge or an unk, bos, eos or template token that is unknown).
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
    bool known = false;  // false: a gap in the ids
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
  // Encodes text without added tokens. `first`: it is the start of the whole text.
  absl::Status EncodeText(std::string text, bool first, std::vector<int32_t>& ids) const;
  absl::Status EncodeWord(const std::string& word, std::vector<int32_t>& ids) const;
  // Ids of the single characters of `word`, before any merge.
  absl::StatusOr<std::vector<int32_t>> CharIds(const std::string& word) const;
  // Byte ids of one character; empty when a byte has no piece.
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
