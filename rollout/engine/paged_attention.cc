#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "rollout/engine/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kTokens = kKvBlockTokens;

// With `using`, clang ignores the alignment.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));  // NOLINT
constexpr int64_t kLanes = 16;
static_assert(kLanes == kTokens);

// scores[t] = q . key t of one block. Four sums side by side hide the latency of additions.
__attribute__((always_inline)) inline Lanes Scores(const float* q, const float* keys, int64_t dim) {
  Lanes sums[4] = {};
  const auto* key = reinterpret_cast<const Lanes*>(keys);
  int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    for (int64_t i = 0; i < 4; ++i) sums[i] += q[d + i] * key[d + i];
  }
  for (; d < dim; ++d) sums[0] += q[d] * key[d];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// out[d] = sum of weights[t] * value[t][d] over the tokens [0, live) of the blocks, for kVectors *
// 16 numbers from `d` on.
template <int kVectors>
__attribute__((always_inline)) inline void AddValues(const KvCache& cache, int64_t layer,
                                                     int64_t kv_head, const PagedQuery& query,
                                                     int64_t first_block, const float* weights,
                                                     int64_t dim, int64_t d, float scale,
                                                     float* out) {
  Lanes sums[kVectors] = {};
  const int64_t num_blocks = (query.num_keys + kTokens - 1) / kTokens;
  for (int64_t b = first_block; b < num_blocks; ++b) {
    const float* values = cache.Values(layer, query.blocks[b], kv_head) + d;
    const int64_t live = query.num_keys - b * kTokens;
    const int64_t tokens = live < kTokens ? live : kTokens;
    for (int64_t t = 0; t < tokens; ++t) {
      const float weight = weights[b * kTokens + t];
      const auto* value = reinterpret_cast<const Lanes*>(values + t * dim);
      for (int v = 0; v < kVectors; ++v) sums[v] += weight * value[v];
    }
  }
  for (int v = 0; v < kVectors; ++v) reinterpret_cast<Lanes*>(out + d)[v] = sums[v] * scale;
}

// One head of one query, over the keys from `first_key` on. `scores` has room for the blocks'
// tokens.
FRESHET_MULTIARCH
void AttendHead(const KvCache& cache, int64_t layer, int64_t kv_head, const PagedQuery& query,
                int64_t first_key, int64_t dim, float scale, const float* q, float* scores,
                float* out) {
  const int64_t num_blocks = (query.num_keys + kTokens - 1) / kTokens;
  const int64_t first_block = first_key / kTokens;
  float max = -3.0e38F;
  for (int64_t b = first_block; b < num_blocks; ++b) {
    const Lanes sums = Scores(q, cache.Keys(layer, query.blocks[b], kv_head), dim);
    const int64_t dead = first_key - b * kTokens;
    const int64_t live = query.num_keys - b * kTokens;
    for (int64_t t = 0; t < kTokens; ++t) {
      const float score = t >= dead && t < live ? sums[t] * scale : -3.0e38F;
      scores[b * kTokens + t] = score;
      max = score > max ? score : max;
    }
  }
  float sums[kTokens] = {};
  for (int64_t b = first_block; b < num_blocks; ++b) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const float weight = ExpNonPositive(scores[b * kTokens + t] - max);
      scores[b * kTokens + t] = weight;
      sums[t] += weight;
    }
  }
  float total = 0;
  for (int64_t t = 0; t < kTokens; ++t) total += sums[t];
  const float inverse = 1.0F / total;
  int64_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) {
    AddValues<4>(cache, layer, kv_head, query, first_block, scores, dim, d, inverse, out);
  }
  for (; d + kLanes <= dim; d += kLanes) {
    AddValues<1>(cache, layer, kv_head, query, first_block, scores, dim, d, inverse, out);
  }
  for (; d < dim; ++d) {
    float sum = 0;
    for (int64_t b = first_block; b < num_blocks; ++b) {
      const float* values = cache.Values(layer, query.blocks[b], kv_head) + d;
      const int64_t live = query.num_keys - b * kTokens;
      for (int64_t t = 0; t < kTokens && t < live; ++t) {
        sum += scores[b * kTokens + t] * values[t * dim];
      }
    }
    out[d] = sum * inverse;
  }
}

}  // namespace

int64_t PagedScores(const PagedQuery& query) {
  return (query.num_keys + kTokens - 1) / kTokens * kTokens;
}

void PagedAttention(const KvCache& cache, int64_t layer, int64_t window, const PagedQuery& query,
                    int64_t num_heads, const float* q, float* scores, float* out) {
  const int64_t dim = cache.shape().head_dim;
  const int64_t group = num_heads / cache.shape().num_kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const int64_t first_key = window > 0 ? std::max<int64_t>(0, query.num_keys - window) : 0;
  for (int64_t h = 0; h < num_heads; ++h) {
    AttendHead(cache, layer, h / group, query, first_key, dim, scale, q + h * dim, scores,
               out + h * dim);
  }
}

}  // namespace freshet
