#ifndef FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
#define FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "rollout/engine/kv_cache.h"

namespace freshet {

// One query token; it attends to `num_keys` tokens of its sequence, including itself.
struct PagedQuery {
  const int32_t* blocks = nullptr;
  int64_t num_keys = 0;
};

// Softmax attention of each query over its keys in the cache, with grouped heads (GQA).
// q: [queries.size()][num_heads][head_dim] with `q_row_stride` floats between rows;
// out: [queries.size()][num_heads * head_dim], dense.
// With a `window` above 0, a query attends to its last `window` keys only. Batch-invariant: a
// query's result depends only on its own keys, processed block by block in order. Runs on the
// calling thread.
void PagedAttention(const KvCache& cache, int64_t layer, int64_t window,
                    const std::vector<PagedQuery>& queries, int64_t num_heads, const float* q,
                    int64_t q_row_stride, float* out);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
