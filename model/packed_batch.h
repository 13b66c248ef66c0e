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

// A packed batch of trees: one unpadded stream of N tokens for token-wise computation, and an index
// plan to compute attention over padded rectangles.
//
// Stream layout: for each tree its prefix, then every suffix without its last token (nothing is
// predicted from it). The keys of a suffix are the tree's prefix followed by the suffix itself.
//
// A *target* is a token whose log-prob is computed: for trees with suffixes every suffix token,
// otherwise prefix tokens 1.. . Targets are ordered by tree, suffix and position.
struct PackedBatch {
  std::vector<int64_t> token_ids;  // [N]
  std::vector<int64_t> positions;  // [N]

  // Prefix attention (causal): rows [num_prefixes, prefix_width] of stream indices, right-padded
  // with any valid index.
  int64_t num_prefixes = 0;
  int64_t prefix_width = 0;
  std::vector<int64_t> prefix_rows;
  // Suffix attention: queries [num_suffixes, suffix_width], right-padded; keys [num_suffixes,
  // prefix_width + suffix_width]: the left-padded prefix, then the suffix.
  int64_t num_suffixes = 0;
  int64_t suffix_width = 0;
  std::vector<int64_t> suffix_query_rows;
  std::vector<int64_t> suffix_key_rows;
  std::vector<int64_t> suffix_prefix_sizes;  // [num_suffixes]
  // Location of each stream token's attention output: an index into the prefix rectangle, or
  // num_prefixes * prefix_width plus an index into the suffix query rectangle. [N]
  std::vector<int64_t> output_rows;

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

// Splits trees, in order, into [begin, end) ranges with at most `max_tokens` tokens and at least
// one tree each.
std::vector<std::pair<size_t, size_t>> SplitByTokens(const std::vector<PackTree>& trees,
                                                     int64_t max_tokens);

}  // namespace freshet

#endif  // FRESHET_MODEL_PACKED_BATCH_H_
