#ifndef FRESHET_MODEL_PACKED_BATCH_H_
#define FRESHET_MODEL_PACKED_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace freshet {

// One prefix and the continuations that share it: a prompt group of GRPO, or, without suffixes, a
// plain sequence. The prefix is stored and computed once.
struct PackTree {
  std::vector<int32_t> prefix;                 // at least one token
  std::vector<std::vector<int32_t>> suffixes;  // each at least one token
};

// A packed batch of trees: one stream of N tokens without padding for everything that works token
// by token, and an index plan by which attention is computed over padded rectangles.
//
// Layout of the stream: for each tree its prefix, then every suffix without its last token (nothing
// is predicted from it). Keys of a suffix are the tree's prefix followed by the suffix itself.
//
// A *target* is a token whose log-prob is wanted: for trees with suffixes, every suffix token; for
// trees without, prefix tokens 1.. . Targets are ordered tree by tree, suffix by suffix, position
// by position.
struct PackedBatch {
  std::vector<int64_t> token_ids;  // [N]
  std::vector<int64_t> positions;  // [N]

  // Prefix attention: rows [num_prefixes, prefix_width] of stream indices, padded at the right with
  // any valid index; causal.
  int64_t num_prefixes = 0;
  int64_t prefix_width = 0;
  std::vector<int64_t> prefix_rows;
  // Suffix attention: queries [num_suffixes, suffix_width], padded at the right; keys
  // [num_suffixes, prefix_width + suffix_width]: the prefix padded at the left, then the suffix.
  int64_t num_suffixes = 0;
  int64_t suffix_width = 0;
  std::vector<int64_t> suffix_query_rows;
  std::vector<int64_t> suffix_key_rows;
  std::vector<int64_t> suffix_prefix_sizes;  // [num_suffixes]
  // Where each stream token's attention output stands: an index into the prefix rectangle, or
  // num_prefixes * prefix_width + an index into the suffix query rectangle. [N]
  std::vector<int64_t> output_rows;

  // Targets. `logit_rows` are the distinct stream rows that predict something; target i is token
  // target_ids[i] predicted from logit_rows[target_logit_rows[i]], and belongs to sequence
  // target_sequences[i] (suffixes are numbered through the batch; a tree without suffixes is one).
  std::vector<int64_t> logit_rows;
  std::vector<int64_t> target_logit_rows;
  std::vector<int64_t> target_ids;
  std::vector<int64_t> target_sequences;
  int64_t num_sequences = 0;
};

// Pure. Trees must not be empty and no prefix or suffix may be empty (checked invariant).
PackedBatch PackTrees(const std::vector<PackTree>& trees);

// Stream tokens that a tree needs, the cost that microbatches are cut by.
int64_t PackedTokens(const PackTree& tree);

// Splits trees, in order, into runs whose tokens sum to at most `max_tokens` (one tree at least per
// run): [begin, end) pairs.
std::vector<std::pair<size_t, size_t>> SplitByTokens(const std::vector<PackTree>& trees,
                                                     int64_t max_tokens);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_BATCH_H_
