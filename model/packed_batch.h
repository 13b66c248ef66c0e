#ifndef FRESHET_MODEL_PACKED_BATCH_H_
#define FRESHET_MODEL_PACKED_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace freshet {

// A prefix and the continuations that share it: a GRPO prompt group or, without suffixes, a plain
// sequence. The prefix is stored and computed once.
struct PackTree {
  std::vector<int32_t> prefix;                 // at least one token
  std::vector<std::vector<int32_t>> suffixes;  // each at least one token
};

// A tree's rows in the stream: from `begin` on its prefix, then its suffixes one after the other.
struct PackedTree {
  int64_t begin = 0;
  int64_t prefix = 0;             // rows
  std::vector<int64_t> suffixes;  // rows of each; 0 for a suffix of one token
};

// A packed batch of trees: one stream of N tokens without padding.
//
// Stream layout: for each tree its prefix, then every suffix without its last token (nothing is
// predicted from it). The keys of a suffix are the tree's prefix followed by the suffix itself.
//
// A *target* is a token whose log-prob is computed: for trees with suffixes every suffix token,
// otherwise prefix tokens 1.. . Targets are ordered by tree, suffix and position.
struct PackedBatch {
  std::vector<int64_t> token_ids;  // [N]
  std::vector<int64_t> positions;  // [N]
  std::vector<PackedTree> trees;

  // Targets. `logit_rows` are the distinct stream rows that predict a target. Target i is token
  // target_ids[i], predicted from logit_rows[target_logit_rows[i]], and belongs to sequence
  // target_sequences[i] (suffixes are numbered across the batch; a tree without suffixes counts as
  // one).
  std::vector<int64_t> logit_rows;
  std::vector<int64_t> target_logit_rows;
  std::vector<int64_t> target_ids;
  std::vector<int64_t> target_sequences;
  int64_t num_sequences = 0;
};

// Pure. Requires non-empty trees, prefixes and suffixes (checked).
PackedBatch PackTrees(const std::vector<PackTree>& trees);

// Stream tokens of a tree: the cost used to cut microbatches.
int64_t PackedTokens(const PackTree& tree);

// Trees of batches with at most `max_tokens` tokens, or one tree that has more: the largest tree
// first, each into the first batch that has room (first-fit decreasing; Johnson 1973). Batches of
// about the same size are adjacent.
std::vector<std::vector<size_t>> PackByTokens(const std::vector<PackTree>& trees,
                                              int64_t max_tokens);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_BATCH_H_
