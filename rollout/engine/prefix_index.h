#ifndef FRESHET_ROLLOUT_ENGINE_PREFIX_INDEX_H_
#define FRESHET_ROLLOUT_ENGINE_PREFIX_INDEX_H_

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rollout/engine/kv_cache.h"

namespace freshet {

// Finds the cache blocks of a sequence's first tokens, so that sequences with a common prefix share
// them. A block stands for its tokens and all tokens before it. Tokens are compared, not only their
// hashes, so a hash collision cannot give a request the keys and values of other tokens. Sequences
// of different spaces share nothing. Holds at most one entry per block. Not thread-safe.
class PrefixIndex {
 public:
  explicit PrefixIndex(int64_t num_blocks) : nodes_(static_cast<size_t>(num_blocks)) {}

  // The blocks of the longest known prefix of `tokens`, at most tokens.size() / kKvBlockTokens.
  std::vector<int32_t> Find(int space, const std::vector<int32_t>& tokens) const;

  // Adds the blocks that hold `tokens`; those of a last, partly filled block are left out. Returns
  // the blocks that are new in the index: others with the same tokens stay.
  std::vector<int32_t> Insert(int space, const std::vector<int32_t>& tokens,
                              const std::vector<int32_t>& blocks);

  // Removes a block, if it is in the index. Sequences that continue it are not found any more.
  void Erase(int32_t block);
  // Removes the blocks of a space, and returns them.
  std::vector<int32_t> Clear(int space);

 private:
  struct Key {
    int64_t parent = 0;  // node of the previous block; for the first block, -1 - space
    std::array<int32_t, kKvBlockTokens> tokens{};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Node {
    int64_t id = 0;  // never used again
    int32_t block = 0;
  };
  struct Place {
    int space = 0;
    Key key;
  };
  static Key KeyOf(int64_t parent, const std::vector<int32_t>& tokens, int64_t block);

  std::unordered_map<Key, Node, KeyHash> by_tokens_;
  std::vector<std::optional<Place>> nodes_;  // by block
  int64_t last_id_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PREFIX_INDEX_H_
