#include "rollout/engine/aten_attention.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "model/kv_cache_size.h"

namespace freshet {
namespace {

// Consecutive queries of one sequence.
struct SequenceRun {
  int64_t first = 0;
  int64_t count = 0;
};

// Bounds of a part's memory: keys, with the padding, and pairs of a query and a key of one
// sequence. A longer sequence is a part of its own; its queries are divided.
constexpr int64_t kMostKeys = 1 << 17;
constexpr int64_t kMostPairs = 1 << 22;

int64_t NumKeys(const EngineBatch& batch, const SequenceRun& run) {
  return batch.queries[static_cast<size_t>(run.first + run.count - 1)].num_keys;
}

// Sequences with the same number of queries and about as many keys.
std::vector<std::vector<SequenceRun>> FindParts(const EngineBatch& batch) {
  std::map<std::pair<int64_t, int>, std::vector<SequenceRun>> alike;
  SequenceRun run;
  for (int64_t i = 0; i < batch.size(); ++i) {
    ++run.count;
    const auto next = static_cast<size_t>(i) + 1;
    if (next < batch.queries.size() &&
        batch.queries[next].blocks == batch.queries[next - 1].blocks &&
        (run.count + 1) * batch.queries[next].num_keys <= kMostPairs) {
      continue;
    }
    const int magnitude = std::bit_width(static_cast<uint64_t>(NumKeys(batch, run)));
    alike[{run.count, magnitude}].push_back(run);
    run = {i + 1, 0};
  }
  std::vector<std::vector<SequenceRun>> parts;
  for (const auto& [kind, runs] : alike) {
    const int64_t most = std::max<int64_t>(1, kMostKeys >> kind.second);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (i % static_cast<size_t>(most) == 0) parts.emplace_back();
      parts.back().push_back(runs[i]);
    }
  }
  return parts;
}

at::Tensor OnDevice(const std::vector<int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

// Consecutive queries of one sequence, with the slots of its keys.
std::vector<VarlenSequence> FindSequences(const EngineBatch& batch) {
  std::vector<VarlenSequence> sequences;
  for (size_t i = 0; i < batch.queries.size(); ++i) {
    const PagedQuery& query = batch.queries[i];
    const bool starts = i == 0 || query.blocks != batch.queries[i - 1].blocks;
    if (starts) sequences.emplace_back();
    VarlenSequence& sequence = sequences.back();
    ++sequence.queries;
    for (int64_t key = std::ssize(sequence.keys); key < query.num_keys; ++key) {
      sequence.keys.push_back(query.blocks[key / kKvBlockTokens] * kKvBlockTokens +
                              key % kKvBlockTokens);
    }
  }
  return sequences;
}

}  // namespace

AtenAttention::AtenAttention(const EngineBatch& batch, const AtenKvCache& cache)
    : batch_(batch), cache_(cache) {
  const at::Device device = cache.data().device();
  std::vector<int64_t> slots;
  for (const auto& [block, slot] : batch.slots) slots.push_back(block * kKvBlockTokens + slot);
  slots_N_ = OnDevice(slots, device);
  if (!device.is_cpu()) {
    varlen_.emplace(FindSequences(batch), cache.data().size(2), device, cache.data().scalar_type(),
                    /*differentiable=*/false);
  }
}

void AtenAttention::MakeParts() {
  const EngineBatch& batch = batch_;
  const at::Device device = cache_.data().device();
  for (const std::vector<SequenceRun>& runs : FindParts(batch)) {
    Part& part = parts_.emplace_back();
    part.sequences = static_cast<int64_t>(runs.size());
    part.queries = runs.front().count;
    std::vector<int64_t> rows;
    std::vector<int64_t> num_keys;
    for (const SequenceRun& run : runs) {
      for (int64_t i = run.first; i < run.first + run.count; ++i) {
        rows.push_back(i);
        num_keys.push_back(batch.queries[static_cast<size_t>(i)].num_keys);
      }
    }
    part.keys = *std::ranges::max_element(num_keys);
    std::vector<int64_t> keys;
    for (const SequenceRun& run : runs) {
      const PagedQuery& last = batch.queries[static_cast<size_t>(run.first + run.count - 1)];
      for (int64_t key = 0; key < part.keys; ++key) {
        // The padding is masked, but must not read slots that were never written.
        const int64_t there = key < last.num_keys ? key : 0;
        keys.push_back(last.blocks[there / kKvBlockTokens] * kKvBlockTokens +
                       there % kKvBlockTokens);
      }
    }
    part.rows = OnDevice(rows, device);
    part.slots = OnDevice(keys, device);
    part.num_keys = OnDevice(num_keys, device).view({part.sequences, part.queries});
  }
}

const at::Tensor& AtenAttention::Mask(Part& part, int64_t window, int64_t heads_per_kv_head) {
  at::Tensor& mask = part.masks[window];
  if (mask.defined()) return mask;
  const at::Tensor key = at::arange(part.keys, part.num_keys.options());
  const at::Tensor end = part.num_keys.unsqueeze(-1);
  at::Tensor seen = key < end;
  if (window > 0) seen = seen.logical_and(key >= end - window);
  mask = seen.repeat({1, heads_per_kv_head, 1}).unsqueeze(1);
  return mask;
}

at::Tensor AtenAttention::Attend(int64_t layer, int64_t window, const at::Tensor& q_NAD) {
  const int64_t heads = q_NAD.size(1);
  const int64_t dim = q_NAD.size(2);
  if (varlen_.has_value() && varlen_->Supports(dim, window)) {
    return varlen_->Attend(window, q_NAD, cache_.data()[0][layer], cache_.data()[1][layer]);
  }
  if (parts_.empty()) MakeParts();
  const at::Tensor q_wide = q_NAD.to(at::kFloat);
  at::Tensor out = at::empty({q_NAD.size(0), heads * dim}, q_wide.options());
  for (Part& part : parts_) {
    const int64_t n = part.queries;
    const at::Tensor k = cache_.Keys(layer, part.slots);
    const int64_t kv_heads = k.size(1);
    const int64_t per_kv_head = heads / kv_heads;
    const auto by_head = [&](const at::Tensor& keys) {
      return keys.view({part.sequences, part.keys, kv_heads, dim}).transpose(1, 2);
    };
    // The query heads of a key head are further queries of it: [B, K, heads of it * n, D].
    const at::Tensor q = q_wide.index_select(0, part.rows)
                             .view({part.sequences, n, kv_heads, per_kv_head, dim})
                             .permute({0, 2, 3, 1, 4})
                             .reshape({part.sequences, kv_heads, per_kv_head * n, dim});
    const at::Tensor mixed = at::scaled_dot_product_attention(
        q, by_head(k), by_head(cache_.Values(layer, part.slots)), Mask(part, window, per_kv_head));
    out.index_copy_(0, part.rows,
                    mixed.view({part.sequences, kv_heads, per_kv_head, n, dim})
                        .permute({0, 3, 1, 2, 4})
                        .reshape({part.sequences * n, heads * dim}));
  }
  return out;
}

}  // namespace freshet
