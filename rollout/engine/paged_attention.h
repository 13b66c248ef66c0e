#ifndef FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
#define FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_

#include <cstdint>

#include "rollout/engine/kv_cache.h"

namespace freshet {

// One query token; it attends to `num_keys` tokens of its sequence, including itself.
struct PagedQuery {
  const int32_t* blocks = nullptr;
  int64_t num_keys = 0;
};

// Number of scores that PagedAttention needs room for.
int64_t PagedScores(const PagedQuery& query);

// Softmax attention of one query over its keys in the cache, with grouped heads (GQA). q and out:
// [num_heads][head_dim]; `scores`: room for PagedScores(query). With a `window` above 0, the query
// attends to its last `window` keys only. The result depends only on the query and its keys, which
// are processed block by block in order. Different queries may run concurrently.
void PagedAttention(const KvCache& cache, int64_t layer, int64_t window, const PagedQuery& query,
                    int64_t num_heads, const float* q, float* scores, float* out);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PAGED_ATTENTION_H_
