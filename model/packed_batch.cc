#include "model/packed_batch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace freshet {
namespace {

int64_t Size(const std::vector<int32_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

// Fills a PackedBatch tree by tree. Widths are computed first.
class Packer {
 public:
  explicit Packer(const std::vector<PackTree>& trees) {
    for (const PackTree& tree : trees) {
      FRESHET_CHECK(!tree.prefix.empty());
      ++batch_.num_prefixes;
      batch_.prefix_width = std::max(batch_.prefix_width, Size(tree.prefix));
      for (const auto& suffix : tree.suffixes) {
        FRESHET_CHECK(!suffix.empty());
        // A one-token suffix is predicted from the prefix and has no query of its own.
        if (suffix.size() > 1) ++batch_.num_suffixes;
        batch_.suffix_width = std::max(batch_.suffix_width, Size(suffix) - 1);
      }
    }
    for (const PackTree& tree : trees) Add(tree);
  }

  PackedBatch Take() && {
    // Suffix outputs follow the prefix rectangle.
    const int64_t prefix_cells = batch_.num_prefixes * batch_.prefix_width;
    for (const int64_t row : suffix_outputs_)
      batch_.output_rows[static_cast<size_t>(row)] += prefix_cells;
    return std::move(batch_);
  }

 private:
  int64_t stream_size() const { return Size64(batch_.token_ids); }
  static int64_t Size64(const std::vector<int64_t>& v) { return static_cast<int64_t>(v.size()); }

  void Add(const PackTree& tree) {
    const int64_t begin = stream_size();
    const int64_t length = Size(tree.prefix);
    for (int64_t i = 0; i < batch_.prefix_width; ++i) {
      if (i >= length) {
        batch_.prefix_rows.push_back(begin);
        continue;
      }
      batch_.output_rows.push_back(Size64(batch_.prefix_rows));
      batch_.prefix_rows.push_back(begin + i);
      batch_.token_ids.push_back(tree.prefix[static_cast<size_t>(i)]);
      batch_.positions.push_back(i);
    }
    if (tree.suffixes.empty()) {
      for (int64_t i = 1; i < length; ++i) {
        AddTarget(begin + i - 1, tree.prefix[static_cast<size_t>(i)]);
      }
      ++batch_.num_sequences;
      return;
    }
    const int64_t last_prefix_row = AddLogitRow(begin + length - 1);
    for (const auto& suffix : tree.suffixes) AddSuffix(suffix, begin, length, last_prefix_row);
  }

  void AddSuffix(const std::vector<int32_t>& suffix, int64_t prefix_begin, int64_t prefix_length,
                 int64_t last_prefix_row) {
    const int64_t begin = stream_size();
    const int64_t queries = Size(suffix) - 1;
    PushTarget(last_prefix_row, suffix[0]);
    for (int64_t i = 0; i < queries; ++i) {
      batch_.token_ids.push_back(suffix[static_cast<size_t>(i)]);
      batch_.positions.push_back(prefix_length + i);
      batch_.output_rows.push_back(Size64(batch_.suffix_query_rows) + i);
      suffix_outputs_.push_back(begin + i);
      AddTarget(begin + i, suffix[static_cast<size_t>(i) + 1]);
    }
    ++batch_.num_sequences;
    if (queries == 0) return;
    for (int64_t i = 0; i < batch_.suffix_width; ++i) {
      batch_.suffix_query_rows.push_back(begin + std::min(i, queries - 1));
    }
    for (int64_t i = 0; i < batch_.prefix_width; ++i) {
      const int64_t padding = batch_.prefix_width - prefix_length;
      batch_.suffix_key_rows.push_back(prefix_begin + std::max<int64_t>(0, i - padding));
    }
    for (int64_t i = 0; i < batch_.suffix_width; ++i) {
      batch_.suffix_key_rows.push_back(begin + std::min(i, queries - 1));
    }
    batch_.suffix_prefix_sizes.push_back(prefix_length);
  }

  int64_t AddLogitRow(int64_t stream_row) {
    batch_.logit_rows.push_back(stream_row);
    return Size64(batch_.logit_rows) - 1;
  }
  void AddTarget(int64_t stream_row, int32_t token) { PushTarget(AddLogitRow(stream_row), token); }
  void PushTarget(int64_t logit_row, int32_t token) {
    batch_.target_logit_rows.push_back(logit_row);
    batch_.target_ids.push_back(token);
    batch_.target_sequences.push_back(batch_.num_sequences);
  }

  PackedBatch batch_;
  std::vector<int64_t> suffix_outputs_;
};

}  // namespace

PackedBatch PackTrees(const std::vector<PackTree>& trees) { return Packer(trees).Take(); }

int64_t PackedTokens(const PackTree& tree) {
  int64_t tokens = Size(tree.prefix);
  for (const auto& suffix : tree.suffixes) tokens += Size(suffix) - 1;
  return tokens;
}

std::vector<std::pair<size_t, size_t>> SplitByTokens(const std::vector<PackTree>& trees,
                                                     int64_t max_tokens) {
  std::vector<std::pair<size_t, size_t>> runs;
  int64_t tokens = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    const int64_t cost = PackedTokens(trees[i]);
    if (runs.empty() || tokens + cost > max_tokens) {
      runs.emplace_back(i, i);
      tokens = 0;
    }
    tokens += cost;
    runs.back().second = i + 1;
  }
  return runs;
}

}  // namespace freshet
