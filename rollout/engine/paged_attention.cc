#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "model/dtype.h"
#include "model/kernels/target_region.h"
#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kTokens = kKvBlockTokens;
constexpr int64_t kMaxRows = 32;  // queries times heads in a run
constexpr int64_t kMaxTileRows = 8;
constexpr float kLowest = -3.0e38F;

using AliasedInt [[gnu::may_alias]] = int32_t;
using AliasedHalf [[gnu::may_alias]] = uint16_t;

FRESHET_INLINE float LoadOne(const float* from) { return *from; }
FRESHET_INLINE float LoadOne(const uint16_t* bf16) { return WidenBf16(*bf16); }

// One head of one query.
struct Row {
  const float* q;  // as Step copies it
  float* out;
  float* scores;  // later the weights
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
  float* q;     // room for the queries of kMaxTileRows rows
};

FRESHET_INLINE int64_t Blocks(int64_t tokens) { return (tokens + kTokens - 1) / kTokens; }

FRESHET_INLINE int64_t FirstKey(const PagedQuery& query, int64_t window) {
  return window > 0 && query.num_keys > window ? query.num_keys - window : 0;
}

// The blocks that a query reads, without the first `shared` ones.
FRESHET_INLINE BlockRange OwnBlocks(const PagedQuery& query, int64_t window, int64_t shared) {
  const int64_t first = FirstKey(query, window) / kTokens;
  return {query.blocks, first > shared ? first : shared, Blocks(query.num_keys)};
}

// Scores that each row of a run has room for.
int64_t RowScores(const PagedQuery* queries, int64_t count) {
  int64_t longest = 0;
  for (int64_t i = 0; i < count; ++i) longest = std::max(longest, queries[i].num_keys);
  return Blocks(longest) * kTokens;
}

// Turns the scores of the keys [first, end) of a row into weights; those of other tokens of the
// blocks become 0. Returns 1 / their sum.
FRESHET_INLINE float Weigh(float* scores, int64_t first, int64_t end) {
  const int64_t first_block = first / kTokens;
  const int64_t end_block = Blocks(end);
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

#define FRESHET_VECTOR_BYTES 16
namespace portable {
#include "rollout/engine/attention_rows.inc"
}  // namespace portable
#undef FRESHET_VECTOR_BYTES

#if defined(__x86_64__)
#define FRESHET_VECTOR_BYTES 32
FRESHET_BEGIN_TARGET(FRESHET_AVX2)
namespace avx2 {
#include "rollout/engine/attention_rows.inc"
}  // namespace avx2
FRESHET_END_TARGET
#undef FRESHET_VECTOR_BYTES

#define FRESHET_VECTOR_BYTES 64
FRESHET_BEGIN_TARGET(FRESHET_AVX512)
namespace avx512 {
#include "rollout/engine/attention_rows.inc"
}  // namespace avx512
FRESHET_END_TARGET

#define FRESHET_ATTENTION_BF16
FRESHET_BEGIN_TARGET(FRESHET_AVX512 ",avx512bf16")
namespace avx512_bf16 {
#include "rollout/engine/attention_rows.inc"
}  // namespace avx512_bf16
FRESHET_END_TARGET
#undef FRESHET_ATTENTION_BF16
#undef FRESHET_VECTOR_BYTES
#endif

using AttendFn = void (*)(const Head&, int64_t window, const PagedQuery*, const QueryRun&,
                          const AttentionRows&, float* scratch);

template <typename T>
AttendFn Choose(CpuKernels kernels) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, uint16_t>) {
    if (kernels >= CpuKernels::kAvx512Bf16) return avx512_bf16::Attend<T>;
  }
  if (kernels >= CpuKernels::kAvx512) return avx512::Attend<T>;
  if (kernels == CpuKernels::kAvx2) return avx2::Attend<T>;
#endif
  return portable::Attend<T>;
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

int64_t PagedScratch(std::span<const PagedQuery> queries, const QueryRun& run,
                     int64_t heads_per_kv_head, int64_t head_dim) {
  const int64_t rows = run.count * std::min(heads_per_kv_head, kMaxRows);
  return kMaxTileRows * head_dim +
         rows * (head_dim + RowScores(queries.data() + run.first, run.count));
}

void PagedAttention(const KvCache& cache, int64_t layer, int64_t window,
                    std::span<const PagedQuery> queries, const QueryRun& run, int64_t kv_head,
                    const AttentionRows& rows, CpuKernels kernels, float* scratch) {
  const int64_t dim = cache.shape().head_dim;
  const Head head{cache, layer, kv_head, dim, 1.0F / std::sqrt(static_cast<float>(dim)), scratch};
  const bool fp32 = cache.shape().format == KvFormat::kFloat32;
  const AttendFn attend = fp32 ? Choose<float>(kernels) : Choose<uint16_t>(kernels);
  attend(head, window, queries.data(), run, rows, scratch + kMaxTileRows * dim);
}

}  // namespace freshet
