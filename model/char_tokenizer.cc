#include "model/char_tokenizer.h"

#include <cstdint>
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
  std::vector<TokenizerFile> files;
  files.push_back({"tokenizer.json", TokenizerJson(chars).dump(2) + "\n"});
  files.push_back({"tokenizer_config.json", TokenizerConfigJson(chars.size()).dump(2) + "\n"});
  return ParseTokenizer(std::move(files), "character tokenizer");
}

}  // namespace freshet
