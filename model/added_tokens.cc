#include "model/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"

namespace freshet {
namespace {

uint64_t EdgeKey(uint32_t node, char byte) {
  return (uint64_t{node} << 8) | static_cast<unsigned char>(byte);
}

// Start of the white space that ends at `end`, at least `begin`.
size_t SpaceBegin(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    const Utf8Char c = DecodeUtf8(text, start);
    if (c.size == 0 || !IsUnicodeSpace(c.code)) break;
    end = start;
  }
  return end;
}

size_t SpaceEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = DecodeUtf8(text, begin);
    if (c.size == 0 || !IsUnicodeSpace(c.code)) break;
    begin += c.size;
  }
  return begin;
}

}  // namespace

void AddedTokenMatcher::Add(std::string_view content, const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : content) {
    const auto [it, inserted] = edges_.try_emplace(EdgeKey(node, byte), num_nodes_);
    if (inserted) ++num_nodes_;
    node = it->second;
  }
  if (node == 0) return;
  starts_token_[static_cast<unsigned char>(content.front())] = true;
  entries_.try_emplace(node, Entry{token.id, token.lstrip, token.rstrip});
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::Match(std::string_view text, size_t at,
                                                         size_t& length) const {
  const Entry* best = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const auto entry = entries_.find(node); entry != entries_.end()) {
      best = &entry->second;
      length = i + 1 - at;
    }
  }
  return best;
}

std::vector<TextPiece> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<TextPiece> pieces;
  size_t done = 0;  // end of the last piece
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const Entry* entry = nullptr;
    if (starts_token_[static_cast<unsigned char>(text[at])]) entry = Match(text, at, length);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    const size_t begin = entry->lstrip ? SpaceBegin(text, done, at) : at;
    const size_t end = entry->rstrip ? SpaceEnd(text, at + length) : at + length;
    if (done < begin) pieces.push_back({-1, done, begin});
    pieces.push_back({entry->id, begin, end});
    done = end;
    at = end;
  }
  if (done < text.size()) pieces.push_back({-1, done, text.size()});
  return pieces;
}

}  // namespace freshet
