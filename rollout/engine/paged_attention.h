#ifndef FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
#define FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "rollout/engine/kv_cache.h"

namespace freshet {

// One query token: it sees `num_keys` tokens through the blocks of its sequence, itself included.
struct PagedQuery {
  const int32_t* blocks = nullptr;
  int64_t num_keys = 0;
};

// Softmax attention of each query over its keys in the cache, heads grouped (GQA).
// q: [queries.size()][num_heads][head_dim] with `q_row_stride` floats between rows;
// out: [queries.size()][num_heads * head_dim], dense.
// A query's result depends on its own keys alone, walked block by block in order: the same bits in
// any batch. Runs on the calling thread.
void PagedAttention(const KvCache& cache, int64_t layer, const std::vector<PagedQuery>& queries,
                    int64_t num_heads, const float* q, int64_t q_row_stride, float* out);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
