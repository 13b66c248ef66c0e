#include "model/bpe_tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <queue>
#include <tuple>
#include <unordered_set>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions are 32 bits
constexpr size_t kMaxQuotedBytes = 60;

uint64_t PairKey(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// A token's text for a message: one line, truncated at a character boundary.
std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::max<size_t>(DecodeUtf8(text, at).size, 1);
    if (at + size > kMaxQuotedBytes) {
      quoted += "...";
      break;
    }
    const bool control = static_cast<unsigned char>(text[at]) < 0x20;
    quoted += control ? "?" : text.substr(at, size);
    at += size;
  }
  return quoted + "'";
}

// Element of the word during merging: a doubly linked list in an array.
struct Symbol {
  int32_t id = 0;
  int32_t prev = -1;
  int32_t next = -1;
  bool alive = true;
};

struct Candidate {
  uint32_t rank = 0;
  int32_t at = 0;
  int32_t id = 0;
};
struct WorseCandidate {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
  }
};

// Cuts `text` before every `mark`.
std::vector<std::string> CutBefore(const std::string& text, const std::string& mark) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(mark, begin + 1), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

}  // namespace

size_t BpeTokenizer::PairHash::operator()(uint64_t pair) const { return Mix64(pair); }

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(BpeSpec spec,
                                                                const std::string& source) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(spec)));
  FRESHET_RETURN_IF_ERROR(tokenizer->IndexVocab(source));
  FRESHET_RETURN_IF_ERROR(tokenizer->IndexAddedTokens(source));
  FRESHET_RETURN_IF_ERROR(tokenizer->IndexMerges(source));
  FRESHET_RETURN_IF_ERROR(tokenizer->ResolveNamedTokens(source));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

absl::Status BpeTokenizer::AddPiece(int32_t id, const std::string& text,
                                    const std::string& source) {
  if (id < 0 || id > kMaxTokenId) {
    return InvalidArgument(source, ": id ", id, " of ", Quote(text), " is not from 0 to ",
                           kMaxTokenId);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= pieces_.size()) pieces_.resize(index + 1);
  Piece& piece = pieces_[index];
  if (piece.known && piece.text != text) {
    return InvalidArgument(source, ": id ", id, " belongs to both ", Quote(piece.text), " and ",
                           Quote(text));
  }
  piece.text = text;
  piece.known = true;
  return absl::OkStatus();
}

absl::Status BpeTokenizer::IndexVocab(const std::string& source) {
  if (spec_.vocab.empty()) return InvalidArgument(source, ": the vocabulary is empty");
  pieces_.reserve(spec_.vocab.size());
  for (const auto& [text, id] : spec_.vocab) {
    FRESHET_RETURN_IF_ERROR(AddPiece(id, text, source));
  }
  byte_ids_.assign(256, -1);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    const auto it = spec_.vocab.find(name);
    if (it != spec_.vocab.end()) byte_ids_[static_cast<size_t>(byte)] = it->second;
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::IndexAddedTokens(const std::string& source) {
  std::unordered_set<std::string_view> seen;
  for (const AddedToken& token : spec_.added_tokens) {
    if (token.content.empty()) {
      return InvalidArgument(source, ": added token ", token.id, " has an empty content");
    }
    if (!seen.insert(token.content).second) {
      return InvalidArgument(source, ": added token ", Quote(token.content), " occurs twice");
    }
    const auto it = spec_.vocab.find(token.content);
    if (it != spec_.vocab.end() && it->second != token.id) {
      return InvalidArgument(source, ": added token ", Quote(token.content), " has id ", token.id,
                             ", but id ", it->second, " in the vocabulary");
    }
    FRESHET_RETURN_IF_ERROR(AddPiece(token.id, token.content, source));
    pieces_[static_cast<size_t>(token.id)].special |= token.special;
    if (token.normalized) {
      normalized_matcher_.Add(Normalize(token.content), token);
    } else {
      raw_matcher_.Add(token.content, token);
    }
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::IndexMerges(const std::string& source) {
  merges_.reserve(spec_.merges.size());
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    const auto left_it = spec_.vocab.find(left);
    const auto right_it = spec_.vocab.find(right);
    const auto merged_it = spec_.vocab.find(left + right);
    for (const auto& [it, text] : {std::pair(left_it, left), std::pair(right_it, right),
                                   std::pair(merged_it, left + right)}) {
      if (it == spec_.vocab.end()) {
        return InvalidArgument(source, ": merge ", rank, " (", Quote(left), " + ", Quote(right),
                               ") names ", Quote(text), ", which is not in the vocabulary");
      }
    }
    // Of two equal pairs the later one wins, as in the tokenizers library.
    merges_[PairKey(left_it->second, right_it->second)] = {static_cast<uint32_t>(rank),
                                                           merged_it->second};
  }
  spec_.merges.clear();
  spec_.merges.shrink_to_fit();
  return absl::OkStatus();
}

absl::Status BpeTokenizer::ResolveNamedTokens(const std::string& source) {
  if (spec_.unk_token) {
    const auto it = spec_.vocab.find(*spec_.unk_token);
    if (it == spec_.vocab.end()) {
      return InvalidArgument(source, ": unk_token ", Quote(*spec_.unk_token),
                             " is not in the vocabulary");
    }
    unk_id_ = it->second;
  }
  if (spec_.bos_token) bos_id_ = Find(*spec_.bos_token);
  if (spec_.bos_token && !bos_id_) {
    return InvalidArgument(source, ": bos_token ", Quote(*spec_.bos_token), " of ",
                           "tokenizer_config.json is not in tokenizer.json");
  }
  if (spec_.eos_token) eos_id_ = Find(*spec_.eos_token);
  if (spec_.eos_token && !eos_id_) {
    return InvalidArgument(source, ": eos_token ", Quote(*spec_.eos_token), " of ",
                           "tokenizer_config.json is not in tokenizer.json");
  }
  for (const auto* ids : {&spec_.prefix_ids, &spec_.suffix_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab_size() || !pieces_[static_cast<size_t>(id)].known) {
        return InvalidArgument(source, ": the post-processor adds id ", id, ", which no token has");
      }
    }
  }
  return absl::OkStatus();
}

std::optional<int32_t> BpeTokenizer::Find(const std::string& text) const {
  for (const AddedToken& token : spec_.added_tokens) {
    if (token.content == text) return token.id;
  }
  const auto it = spec_.vocab.find(text);
  if (it == spec_.vocab.end()) return std::nullopt;
  return it->second;
}

std::string BpeTokenizer::Normalize(std::string_view text) const {
  std::string normalized(text);
  for (const NormalizeStep& step : spec_.normalizer) {
    if (step.kind == NormalizeStep::Kind::kReplace) {
      normalized = ReplaceAll(normalized, step.pattern, step.content);
    } else if (!normalized.empty()) {
      normalized.insert(0, step.content);
    }
  }
  return normalized;
}

const BpeTokenizer::Merge* BpeTokenizer::FindMerge(int32_t left, int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("text has ", text.size(), " bytes, want at most ", kMaxTextBytes);
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return InvalidArgument("text is not UTF-8 at byte ", at);
  }
  std::vector<int32_t> ids;
  for (const TextPiece& piece : raw_matcher_.Split(text)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const std::string normalized = Normalize(text.substr(piece.begin, piece.end - piece.begin));
    for (const TextPiece& part : normalized_matcher_.Split(normalized)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      const bool first = piece.begin == 0 && part.begin == 0;
      FRESHET_RETURN_IF_ERROR(
          EncodeText(normalized.substr(part.begin, part.end - part.begin), first, ids));
    }
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::EncodeWithSpecial(std::string_view text) const {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> middle, Encode(text));
  std::vector<int32_t> ids = spec_.prefix_ids;
  ids.insert(ids.end(), middle.begin(), middle.end());
  ids.insert(ids.end(), spec_.suffix_ids.begin(), spec_.suffix_ids.end());
  return ids;
}

absl::Status BpeTokenizer::EncodeText(std::string text, bool first,
                                      std::vector<int32_t>& ids) const {
  std::vector<std::string> words;
  words.push_back(std::move(text));
  for (const MetaspaceRule& rule : spec_.pre_tokenizer) {
    std::vector<std::string> next;
    for (size_t i = 0; i < words.size(); ++i) {
      std::string word = ReplaceAll(words[i], " ", rule.replacement);
      const bool wanted = rule.scheme == MetaspaceRule::Scheme::kAlways ||
                          (rule.scheme == MetaspaceRule::Scheme::kFirst && first && i == 0);
      if (wanted && word.compare(0, rule.replacement.size(), rule.replacement) != 0) {
        word.insert(0, rule.replacement);
      }
      if (!rule.split) {
        next.push_back(std::move(word));
        continue;
      }
      for (std::string& cut : CutBefore(word, rule.replacement)) next.push_back(std::move(cut));
    }
    words = std::move(next);
  }
  for (const std::string& word : words) FRESHET_RETURN_IF_ERROR(EncodeWord(word, ids));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeWord(const std::string& word, std::vector<int32_t>& ids) const {
  if (spec_.ignore_merges) {
    if (const auto it = spec_.vocab.find(word); it != spec_.vocab.end()) {
      ids.push_back(it->second);
      return absl::OkStatus();
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> chars, CharIds(word));
  MergeInto(chars, ids);
  return absl::OkStatus();
}

std::vector<int32_t> BpeTokenizer::ByteIds(std::string_view bytes) const {
  std::vector<int32_t> ids;
  for (const char byte : bytes) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id < 0) return {};
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::CharIds(const std::string& word) const {
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  bool after_unk = false;
  for (size_t at = 0; at < word.size();) {
    const Utf8Char c = DecodeUtf8(word, at);
    const std::string text = word.substr(at, c.size);
    at += c.size;
    if (const auto it = spec_.vocab.find(text); it != spec_.vocab.end()) {
      ids.push_back(it->second);
      after_unk = false;
      continue;
    }
    if (spec_.byte_fallback) {
      const std::vector<int32_t> bytes = ByteIds(text);
      if (!bytes.empty()) {
        ids.insert(ids.end(), bytes.begin(), bytes.end());
        after_unk = false;
        continue;
      }
    }
    if (!unk_id_) {
      return InvalidArgument("character ", DescribeChar(c.code),
                             " is not in the tokenizer's vocabulary");
    }
    if (!(after_unk && spec_.fuse_unk)) ids.push_back(*unk_id_);
    after_unk = true;
  }
  return ids;
}

void BpeTokenizer::MergeInto(const std::vector<int32_t>& chars, std::vector<int32_t>& ids) const {
  const auto size = static_cast<int32_t>(chars.size());
  std::vector<Symbol> symbols(chars.size());
  std::priority_queue<Candidate, std::vector<Candidate>, WorseCandidate> queue;
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge* merge = FindMerge(symbol(left).id, symbol(right).id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i < size; ++i) {
    symbol(i) = {chars[static_cast<size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1, true};
  }
  for (int32_t i = 0; i + 1 < size; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    // The symbols may have been merged since this candidate was queued.
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).prev = best.at;
    consider(left.prev, best.at);
    consider(best.at, left.next);
  }
  for (const Symbol& s : symbols) {
    if (s.alive) ids.push_back(s.id);
  }
}

std::string BpeTokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Piece& piece = pieces_[static_cast<size_t>(id)];
    if (!piece.known || (skip_special && piece.special)) continue;
    tokens.push_back(piece.text);
  }
  if (spec_.decoder) return DecodeTokens(std::move(tokens), *spec_.decoder);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace freshet
