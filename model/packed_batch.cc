#include "model/packed_batch.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/log.h"

namespace freshet {
namespace {

int64_t Size(const std::vector<int32_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

// Fills a PackedBatch tree by tree.
class Packer {
 public:
  void Add(const PackTree& tree) {
    FRESHET_CHECK(!tree.prefix.empty());
    const int64_t begin = stream_size();
    const int64_t length = Size(tree.prefix);
    batch_.trees.push_back({begin, length, {}});
    for (int64_t i = 0; i < length; ++i) AddToken(tree.prefix[static_cast<size_t>(i)], i);
    if (tree.suffixes.empty()) {
      for (int64_t i = 1; i < length; ++i) {
        AddTarget(begin + i - 1, tree.prefix[static_cast<size_t>(i)]);
      }
      ++batch_.num_sequences;
      return;
    }
    const int64_t last_prefix_row = AddLogitRow(begin + length - 1);
    for (const auto& suffix : tree.suffixes) AddSuffix(suffix, length, last_prefix_row);
  }

  PackedBatch Take() && { return std::move(batch_); }

 private:
  int64_t stream_size() const { return std::ssize(batch_.token_ids); }

  void AddSuffix(const std::vector<int32_t>& suffix, int64_t prefix_length,
                 int64_t last_prefix_row) {
    FRESHET_CHECK(!suffix.empty());
    const int64_t begin = stream_size();
    const int64_t queries = Size(suffix) - 1;
    batch_.trees.back().suffixes.push_back(queries);
    PushTarget(last_prefix_row, suffix[0]);
    for (int64_t i = 0; i < queries; ++i) {
      AddToken(suffix[static_cast<size_t>(i)], prefix_length + i);
      AddTarget(begin + i, suffix[static_cast<size_t>(i) + 1]);
    }
    ++batch_.num_sequences;
  }

  void AddToken(int32_t id, int64_t position) {
    batch_.token_ids.push_back(id);
    batch_.positions.push_back(position);
  }
  int64_t AddLogitRow(int64_t stream_row) {
    batch_.logit_rows.push_back(stream_row);
    return std::ssize(batch_.logit_rows) - 1;
  }
  void AddTarget(int64_t stream_row, int32_t token) { PushTarget(AddLogitRow(stream_row), token); }
  void PushTarget(int64_t logit_row, int32_t token) {
    batch_.target_logit_rows.push_back(logit_row);
    batch_.target_ids.push_back(token);
    batch_.target_sequences.push_back(batch_.num_sequences);
  }

  PackedBatch batch_;
};

}  // namespace

PackedBatch PackTrees(const std::vector<PackTree>& trees) {
  Packer packer;
  for (const PackTree& tree : trees) packer.Add(tree);
  return std::move(packer).Take();
}

int64_t PackedTokens(const PackTree& tree) {
  int64_t tokens = Size(tree.prefix);
  for (const auto& suffix : tree.suffixes) tokens += Size(suffix) - 1;
  return tokens;
}

std::vector<std::vector<size_t>> PackByTokens(const std::vector<PackTree>& trees,
                                              int64_t max_tokens) {
  std::vector<int64_t> tokens;
  for (const PackTree& tree : trees) tokens.push_back(PackedTokens(tree));
  std::vector<size_t> order(trees.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t tree) { return tokens[tree]; });
  std::vector<std::vector<size_t>> bins;
  std::vector<int64_t> sizes;
  for (const size_t tree : order) {
    size_t bin = 0;
    while (bin < bins.size() && sizes[bin] + tokens[tree] > max_tokens) ++bin;
    if (bin == bins.size()) {
      bins.emplace_back();
      sizes.push_back(0);
    }
    bins[bin].push_back(tree);
    sizes[bin] += tokens[tree];
  }
  return bins;
}

}  // namespace freshet
