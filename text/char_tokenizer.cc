#include "text/char_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAlphabetChars = 65'536;

Json EndToken(size_t id) {
  Json token = {
      {"id", id},        {"content", kCharTokenizerEnd}, {"single_word", false}, {"lstrip", false},
      {"rstrip", false}, {"normalized", false},          {"special", true}};
  return token;
}

// A BPE model without merges, which splits text into characters.
Json TokenizerJson(const std::vector<std::string>& chars) {
  Json vocab = Json::object();
  for (size_t i = 0; i < chars.size(); ++i) vocab[chars[i]] = i;
  vocab[kCharTokenizerEnd] = chars.size();
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = Json::array({EndToken(chars.size())});
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "Fuse"}};
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", std::move(vocab)},
                   {"merges", Json::array()}};
  return json;
}

Json TokenizerConfigJson(size_t end_id) {
  Json token = EndToken(end_id);
  token.erase("id");
  Json json;
  json["added_tokens_decoder"] = {{std::to_string(end_id), std::move(token)}};
  json["clean_up_tokenization_spaces"] = false;
  json["eos_token"] = kCharTokenizerEnd;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json;
}

std::vector<TokenizerFile> MakeFiles(const std::vector<std::string>& chars) {
  return {{"tokenizer.json", TokenizerJson(chars).dump(2) + "\n"},
          {"tokenizer_config.json", TokenizerConfigJson(chars.size()).dump(2) + "\n"}};
}

class CharTokenizer final : public Tokenizer {
 public:
  explicit CharTokenizer(std::vector<std::string> chars)
      : files_(MakeFiles(chars)), pieces_(std::move(chars)) {
    for (size_t i = 0; i < pieces_.size(); ++i) ids_[pieces_[i]] = static_cast<int32_t>(i);
    pieces_.emplace_back(kCharTokenizerEnd);
  }

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              SpecialTokens special) const override {
    const std::string_view end = kCharTokenizerEnd;
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (special == SpecialTokens::kRecognized && text.substr(at).starts_with(end)) {
        ids.push_back(*eos_id());
        at += end.size();
        continue;
      }
      const Utf8Char c = DecodeUtf8(text, at);
      if (c.size == 0) return InvalidArgument("text is not UTF-8 at byte ", at);
      const auto found = ids_.find(text.substr(at, c.size));
      if (found == ids_.end()) {
        return InvalidArgument("character ", DescribeChar(c.code),
                               " is not in the tokenizer's vocabulary");
      }
      ids.push_back(found->second);
      at += c.size;
    }
    return ids;
  }
  absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text,
                                                         SpecialTokens special) const override {
    return Encode(text, special);
  }

  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += Piece(id, skip_special);
    return text;
  }
  std::unique_ptr<StreamDecoder> MakeStreamDecoder(bool skip_special) const override {
    return std::make_unique<CharStreamDecoder>(*this, skip_special);
  }

  absl::StatusOr<std::string> RenderChat(const ChatRequest&) const override { return NoTemplate(); }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatRequest&) const override {
    return NoTemplate();
  }
  bool ChatAvailable() const override { return true; }

  int64_t longest_token_bytes() const override {
    size_t longest = 0;
    for (const std::string& piece : pieces_) longest = std::max(longest, piece.size());
    return static_cast<int64_t>(longest);
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return vocab_size() - 1; }
  const std::vector<TokenizerFile>& Files() const override { return files_; }

 private:
  class CharStreamDecoder final : public StreamDecoder {
   public:
    CharStreamDecoder(const CharTokenizer& tokenizer, bool skip_special)
        : tokenizer_(tokenizer), skip_special_(skip_special) {}
    std::string Push(int32_t id) override { return tokenizer_.Piece(id, skip_special_); }
    std::string Finish() override { return ""; }

   private:
    const CharTokenizer& tokenizer_;
    const bool skip_special_;
  };

  static absl::Status NoTemplate() {
    return FailedPrecondition("a character tokenizer has no chat template");
  }
  std::string Piece(int32_t id, bool skip_special) const {
    const bool known = id >= 0 && id < vocab_size();
    return known && !(skip_special && id == *eos_id()) ? pieces_[static_cast<size_t>(id)] : "";
  }

  const std::vector<TokenizerFile> files_;
  std::vector<std::string> pieces_;  // by id
  std::map<std::string, int32_t, std::less<>> ids_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateCharTokenizer(std::string_view alphabet) {
  if (alphabet.empty()) {
    return InvalidArgument("tokenizer alphabet is empty, want at least one character");
  }
  std::vector<std::string> chars;
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < alphabet.size();) {
    const Utf8Char c = DecodeUtf8(alphabet, at);
    if (c.size == 0) return InvalidArgument("tokenizer alphabet is not UTF-8 at byte ", at);
    if (seen[c.code]) {
      return InvalidArgument("tokenizer alphabet repeats ", DescribeChar(c.code),
                             "; each character may occur once");
    }
    if (chars.size() == kMaxAlphabetChars) {
      return InvalidArgument("tokenizer alphabet has more than ", kMaxAlphabetChars, " characters");
    }
    seen[c.code] = true;
    chars.emplace_back(alphabet.substr(at, c.size));
    at += c.size;
  }
  return std::make_unique<CharTokenizer>(std::move(chars));
}

}  // namespace freshet
