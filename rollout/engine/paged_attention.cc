#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "model/dtype.h"
#include "rollout/engine/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kTokens = kKvBlockTokens;
constexpr int64_t kMaxRows = 32;  // queries times heads in a run
constexpr float kLowest = -3.0e38F;

#define FRESHET_INLINE inline __attribute__((always_inline))

// With `using`, clang ignores the alignment.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));      // NOLINT
typedef uint32_t Bits __attribute__((vector_size(64), aligned(4), may_alias));    // NOLINT
typedef uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));  // NOLINT
constexpr int64_t kLanes = 16;
static_assert(kLanes == kTokens);

FRESHET_INLINE Lanes Load(const float* from) { return *reinterpret_cast<const Lanes*>(from); }

FRESHET_INLINE Lanes Load(const uint16_t* bf16) {
  const Bits bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(bf16), Bits) << 16;
  return reinterpret_cast<const Lanes&>(bits);
}

FRESHET_INLINE float LoadOne(const float* from) { return *from; }
FRESHET_INLINE float LoadOne(const uint16_t* bf16) { return WidenBf16(*bf16); }

// One head of one query.
struct Row {
  const float* q;
  float* out;
  float* scores;
};

// A range of blocks in a block table.
struct BlockRange {
  const int32_t* table;
  int64_t begin;
  int64_t end;
};

// What the rows of a call have in common.
struct Head {
  const KvCache& cache;
  int64_t layer;
  int64_t kv_head;
  int64_t dim;
  float scale;  // of the scores
};

// scores[t] = scale * q . key t of the range's blocks. A row's sums are in the same order for any
// number of rows. Four sums side by side hide the latency of additions.
template <typename T, int kRows>
FRESHET_INLINE void Score(const Head& head, const BlockRange& range, const Row* rows) {
  for (int64_t b = range.begin; b < range.end; ++b) {
    const T* keys = head.cache.Keys<T>(head.layer, range.table[b], head.kv_head);
    Lanes sums[kRows][4] = {};
    int64_t d = 0;
    for (; d + 4 <= head.dim; d += 4) {
      for (int64_t i = 0; i < 4; ++i) {
        const Lanes key = Load(keys + (d + i) * kTokens);
        for (int r = 0; r < kRows; ++r) sums[r][i] += rows[r].q[d + i] * key;
      }
    }
    for (; d < head.dim; ++d) {
      const Lanes key = Load(keys + d * kTokens);
      for (int r = 0; r < kRows; ++r) sums[r][0] += rows[r].q[d] * key;
    }
    for (int r = 0; r < kRows; ++r) {
      const Lanes sum = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
      *reinterpret_cast<Lanes*>(rows[r].scores + b * kTokens) = sum * head.scale;
    }
  }
}

// out[d] += weights[t] * value[t][d] for kVectors * 16 numbers from `d` on, over the range's
// blocks and tokens below `num_keys`.
template <typename T, int kRows, int kVectors>
FRESHET_INLINE void AddValues(const Head& head, const BlockRange& range, int64_t num_keys,
                              const Row* rows, int64_t d) {
  Lanes sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Load(rows[r].out + d + v * kLanes);
  }
  for (int64_t b = range.begin; b < range.end; ++b) {
    const T* values = head.cache.Values<T>(head.layer, range.table[b], head.kv_head) + d;
    const int64_t live = num_keys - b * kTokens;
    const int64_t tokens = live < kTokens ? live : kTokens;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        const Lanes value = Load(values + t * head.dim + v * kLanes);
        for (int r = 0; r < kRows; ++r) sums[r][v] += rows[r].scores[b * kTokens + t] * value;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Lanes*>(rows[r].out + d + v * kLanes) = sums[r][v];
    }
  }
}

template <typename T, int kRows>
FRESHET_INLINE void Combine(const Head& head, const BlockRange& range, int64_t num_keys,
                            const Row* rows) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= head.dim; d += 4 * kLanes) {
    AddValues<T, kRows, 4>(head, range, num_keys, rows, d);
  }
  for (; d + kLanes <= head.dim; d += kLanes) {
    AddValues<T, kRows, 1>(head, range, num_keys, rows, d);
  }
  for (; d < head.dim; ++d) {
    for (int r = 0; r < kRows; ++r) {
      float sum = rows[r].out[d];
      for (int64_t b = range.begin; b < range.end; ++b) {
        const T* values = head.cache.Values<T>(head.layer, range.table[b], head.kv_head) + d;
        const int64_t live = num_keys - b * kTokens;
        for (int64_t t = 0; t < kTokens && t < live; ++t) {
          sum += rows[r].scores[b * kTokens + t] * LoadOne(values + t * head.dim);
        }
      }
      rows[r].out[d] = sum;
    }
  }
}

template <typename T>
FRESHET_INLINE void ScoreRows(const Head& head, const BlockRange& range, const Row* rows,
                              int64_t count) {
  for (; count >= 4; count -= 4, rows += 4) Score<T, 4>(head, range, rows);
  for (; count >= 1; --count, ++rows) Score<T, 1>(head, range, rows);
}

template <typename T>
FRESHET_INLINE void CombineRows(const Head& head, const BlockRange& range, int64_t num_keys,
                                const Row* rows, int64_t count) {
  for (; count >= 4; count -= 4, rows += 4) Combine<T, 4>(head, range, num_keys, rows);
  for (; count >= 1; --count, ++rows) Combine<T, 1>(head, range, num_keys, rows);
}

// Turns the scores of the keys [first, end) of a row into weights; those of other tokens of the
// blocks become 0. Returns 1 / their sum.
FRESHET_INLINE float Weigh(float* scores, int64_t first, int64_t end) {
  const int64_t first_block = first / kTokens;
  const int64_t end_block = (end + kTokens - 1) / kTokens;
  for (int64_t t = first_block * kTokens; t < first; ++t) scores[t] = kLowest;
  for (int64_t t = end; t < end_block * kTokens; ++t) scores[t] = kLowest;
  float maxima[kTokens];
  for (float& max : maxima) max = kLowest;
  for (int64_t b = first_block; b < end_block; ++b) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const float score = scores[b * kTokens + t];
      maxima[t] = score > maxima[t] ? score : maxima[t];
    }
  }
  float max = maxima[0];
  for (const float other : maxima) max = other > max ? other : max;
  float sums[kTokens] = {};
  for (int64_t b = first_block; b < end_block; ++b) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const float weight = ExpNonPositive(scores[b * kTokens + t] - max);
      scores[b * kTokens + t] = weight;
      sums[t] += weight;
    }
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return 1.0F / total;
}

template <typename T>
FRESHET_INLINE void Attend(const Head& head, int64_t window, const PagedQuery* queries,
                           const QueryRun& run, const AttentionRows& rows, float* scores) {
  const int64_t group = rows.num_heads / head.cache.shape().num_kv_heads;
  const int64_t shared = window > 0 ? 0 : run.shared_blocks;
  // A run of one query may have any number of heads; others have at most kMaxRows rows.
  Row all[kMaxRows];
  for (int64_t first = 0; first < group; first += kMaxRows) {
    const int64_t heads = std::min(kMaxRows, group - first);
    int64_t longest = 0;
    for (int64_t i = 0; i < run.count; ++i) {
      longest = std::max(longest, queries[run.first + i].num_keys);
    }
    const int64_t stride = (longest + kTokens - 1) / kTokens * kTokens;
    for (int64_t i = 0; i < run.count; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t offset = (head.kv_head * group + first + h) * head.dim;
        const int64_t row = i * heads + h;
        all[row] = {rows.q + i * rows.q_stride + offset, rows.out + i * rows.out_stride + offset,
                    scores + row * stride};
        for (int64_t d = 0; d < head.dim; ++d) all[row].out[d] = 0;
      }
    }
    const BlockRange common{queries[run.first].blocks, 0, shared};
    ScoreRows<T>(head, common, all, run.count * heads);
    for (int64_t i = 0; i < run.count; ++i) {
      const PagedQuery& query = queries[run.first + i];
      const int64_t first_key = window > 0 ? std::max<int64_t>(0, query.num_keys - window) : 0;
      const BlockRange own{query.blocks, std::max(shared, first_key / kTokens),
                           (query.num_keys + kTokens - 1) / kTokens};
      ScoreRows<T>(head, own, all + i * heads, heads);
    }
    float inverse[kMaxRows];
    for (int64_t row = 0; row < run.count * heads; ++row) {
      const int64_t keys = queries[run.first + row / heads].num_keys;
      inverse[row] =
          Weigh(all[row].scores, window > 0 ? std::max<int64_t>(0, keys - window) : 0, keys);
    }
    CombineRows<T>(head, common, shared * kTokens, all, run.count * heads);
    for (int64_t i = 0; i < run.count; ++i) {
      const PagedQuery& query = queries[run.first + i];
      const int64_t first_key = window > 0 ? std::max<int64_t>(0, query.num_keys - window) : 0;
      const BlockRange own{query.blocks, std::max(shared, first_key / kTokens),
                           (query.num_keys + kTokens - 1) / kTokens};
      CombineRows<T>(head, own, query.num_keys, all + i * heads, heads);
    }
    for (int64_t row = 0; row < run.count * heads; ++row) {
      for (int64_t d = 0; d < head.dim; ++d) all[row].out[d] *= inverse[row];
    }
  }
}

FRESHET_MULTIARCH
void AttendFloat32(const Head& head, int64_t window, const PagedQuery* queries, const QueryRun& run,
                   const AttentionRows& rows, float* scores) {
  Attend<float>(head, window, queries, run, rows, scores);
}

FRESHET_MULTIARCH
void AttendBfloat16(const Head& head, int64_t window, const PagedQuery* queries,
                    const QueryRun& run, const AttentionRows& rows, float* scores) {
  Attend<uint16_t>(head, window, queries, run, rows, scores);
}

// Leading whole blocks that both queries see.
int64_t SharedBlocks(const PagedQuery& a, const PagedQuery& b, int64_t most) {
  most = std::min({most, a.num_keys / kTokens, b.num_keys / kTokens});
  if (a.blocks == b.blocks) return most;
  int64_t shared = 0;
  while (shared < most && a.blocks[shared] == b.blocks[shared]) ++shared;
  return shared;
}

}  // namespace

std::vector<QueryRun> FindQueryRuns(std::span<const PagedQuery> queries,
                                    int64_t heads_per_kv_head) {
  const int64_t most = std::max<int64_t>(1, kMaxRows / heads_per_kv_head);
  std::vector<QueryRun> runs;
  for (size_t i = 0; i < queries.size(); ++i) {
    const int64_t whole = queries[i].num_keys / kTokens;
    if (!runs.empty() && runs.back().count < most) {
      QueryRun& run = runs.back();
      const int64_t shared =
          SharedBlocks(queries[static_cast<size_t>(run.first)], queries[i], run.shared_blocks);
      // A query that shares little would make the others read what they share more than once.
      if (shared > 0 && 2 * shared >= run.shared_blocks) {
        ++run.count;
        run.shared_blocks = shared;
        continue;
      }
    }
    runs.push_back({static_cast<int64_t>(i), 1, whole});
  }
  return runs;
}

int64_t PagedScores(std::span<const PagedQuery> queries, const QueryRun& run,
                    int64_t heads_per_kv_head) {
  int64_t longest = 0;
  for (const PagedQuery& query :
       queries.subspan(static_cast<size_t>(run.first), static_cast<size_t>(run.count))) {
    longest = std::max(longest, query.num_keys);
  }
  const int64_t rows = run.count * std::min(heads_per_kv_head, kMaxRows);
  return rows * ((longest + kTokens - 1) / kTokens * kTokens);
}

void PagedAttention(const KvCache& cache, int64_t layer, int64_t window,
                    std::span<const PagedQuery> queries, const QueryRun& run, int64_t kv_head,
                    const AttentionRows& rows, float* scores) {
  const int64_t dim = cache.shape().head_dim;
  const Head head{cache, layer, kv_head, dim, 1.0F / std::sqrt(static_cast<float>(dim))};
  if (cache.shape().format == KvFormat::kFloat32) {
    AttendFloat32(head, window, queries.data(), run, rows, scores);
  } else {
    AttendBfloat16(head, window, queries.data(), run, rows, scores);
  }
}

}  // namespace freshet
