#include "rollout/engine/prefix_index.h"

#include <algorithm>

#include "base/digest.h"

namespace freshet {

size_t PrefixIndex::KeyHash::operator()(const Key& key) const {
  return Xxh3(key.tokens.data(), sizeof(key.tokens), static_cast<uint64_t>(key.parent));
}

PrefixIndex::Key PrefixIndex::KeyOf(int64_t parent, const std::vector<int32_t>& tokens,
                                    int64_t block) {
  Key key{.parent = parent};
  std::copy_n(tokens.begin() + block * kKvBlockTokens, kKvBlockTokens, key.tokens.begin());
  return key;
}

std::vector<int32_t> PrefixIndex::Find(int space, const std::vector<int32_t>& tokens) const {
  std::vector<int32_t> blocks;
  const int64_t whole = static_cast<int64_t>(tokens.size()) / kKvBlockTokens;
  int64_t parent = -1 - space;
  for (int64_t b = 0; b < whole; ++b) {
    const auto found = by_tokens_.find(KeyOf(parent, tokens, b));
    if (found == by_tokens_.end()) break;
    blocks.push_back(found->second.block);
    parent = found->second.id;
  }
  return blocks;
}

std::vector<int32_t> PrefixIndex::Insert(int space, const std::vector<int32_t>& tokens,
                                         const std::vector<int32_t>& blocks) {
  std::vector<int32_t> added;
  const int64_t whole = static_cast<int64_t>(tokens.size()) / kKvBlockTokens;
  int64_t parent = -1 - space;
  for (int64_t b = 0; b < whole; ++b) {
    const int32_t block = blocks[static_cast<size_t>(b)];
    const Key key = KeyOf(parent, tokens, b);
    const auto found = by_tokens_.find(key);
    if (found != by_tokens_.end()) {
      parent = found->second.id;
      continue;
    }
    // The block may stand for the same tokens after a parent that was removed.
    Erase(block);
    by_tokens_.emplace(key, Node{++last_id_, block});
    nodes_[static_cast<size_t>(block)] = Place{space, key};
    added.push_back(block);
    parent = last_id_;
  }
  return added;
}

void PrefixIndex::Erase(int32_t block) {
  std::optional<Place>& place = nodes_[static_cast<size_t>(block)];
  if (!place.has_value()) return;
  by_tokens_.erase(place->key);
  place.reset();
}

std::vector<int32_t> PrefixIndex::Clear(int space) {
  std::vector<int32_t> blocks;
  for (int32_t block = 0; block < static_cast<int32_t>(nodes_.size()); ++block) {
    const std::optional<Place>& place = nodes_[static_cast<size_t>(block)];
    if (!place.has_value() || place->space != space) continue;
    Erase(block);
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace freshet
