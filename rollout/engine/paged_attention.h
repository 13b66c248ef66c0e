#ifndef FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
#define FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "rollout/engine/kernels/cpu_features.h"
#include "rollout/engine/kv_cache.h"

namespace freshet {

// One query token; it attends to `num_keys` tokens of its sequence, including itself.
struct PagedQuery {
  const int32_t* blocks = nullptr;
  int64_t num_keys = 0;
};

// Consecutive queries that share the blocks of their first keys: tokens of one prompt, or samples
// of a group. Their shared keys and values are read once for all of them (Juravsky et al. 2024,
// "Hydragen", section 3.1).
struct QueryRun {
  int64_t first = 0;
  int64_t count = 0;
  int64_t shared_blocks = 0;  // whole blocks that all queries see
};

// Divides `queries` into runs. `heads_per_kv_head` limits their length, so that the scores of a run
// stay in the CPU's cache.
std::vector<QueryRun> FindQueryRuns(std::span<const PagedQuery> queries, int64_t heads_per_kv_head);

// The heads of a run's queries. Row i belongs to query run.first + i.
struct AttentionRows {
  const float* q = nullptr;  // [run.count][q_stride], a row has [num_heads][head_dim]
  int64_t q_stride = 0;
  float* out = nullptr;  // likewise
  int64_t out_stride = 0;
  int64_t num_heads = 0;
};

// Size of the scratch memory of PagedAttention, in floats.
int64_t PagedScratch(std::span<const PagedQuery> queries, const QueryRun& run,
                     int64_t heads_per_kv_head, int64_t head_dim);

// Softmax attention of a run's queries over their keys in the cache, for the query heads that use
// `kv_head` (GQA). With a `window` above 0, a query attends to its last `window` keys only. A
// query's result depends on nothing but `kernels`, the query and its keys, which are processed
// block by block in order. If the cache is bf16, queries are rounded to bf16, as its keys are.
// `kernels`: of this CPU.
// `scratch`: PagedScratch floats, uninitialized. Different heads and runs may be computed
// concurrently, each with scratch memory of its own.
void PagedAttention(const KvCache& cache, int64_t layer, int64_t window,
                    std::span<const PagedQuery> queries, const QueryRun& run, int64_t kv_head,
                    const AttentionRows& rows, CpuKernels kernels, float* scratch);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
