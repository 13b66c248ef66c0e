#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

// The kernel is compiled for several instruction sets and selected at load time. Disabled under
// sanitizers, whose run-time is not initialized when the ifunc resolver runs.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FRESHET_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FRESHET_SANITIZED 1
#endif
#if defined(__x86_64__) && !defined(FRESHET_SANITIZED)
#define FRESHET_MULTIARCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FRESHET_MULTIARCH
#endif

namespace freshet {
namespace {

constexpr int64_t kTokens = kKvBlockTokens;

// e^x for x <= 0 without branches, so that loops vectorize: 2^n * 2^f with a degree-6 polynomial
// for 2^f on [-0.5, 0.5]. Relative error below 2e-7. Underflows to 0 below -87.
inline float ExpNonPositive(float x) {
  const float clamped = x < -87.0F ? -87.0F : x;
  const float scaled = clamped * 1.44269504088896341F;
  const float rounded = (scaled + 12582912.0F) - 12582912.0F;  // rounds: 1.5 * 2^23
  const float f = scaled - rounded;
  float p = 1.54035304e-4F;
  p = p * f + 1.33335581e-3F;
  p = p * f + 9.61812911e-3F;
  p = p * f + 5.55041087e-2F;
  p = p * f + 2.40226507e-1F;
  p = p * f + 6.93147181e-1F;
  p = p * f + 1.0F;
  const int32_t exponent = (static_cast<int32_t>(rounded) + 127) << 23;
  const float result = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : result;
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
    const float* keys = cache.Keys(layer, query.blocks[b], kv_head);
    float sums[kTokens] = {};
    for (int64_t d = 0; d < dim; ++d) {
      const float qd = q[d];
      for (int64_t t = 0; t < kTokens; ++t) sums[t] += qd * keys[d * kTokens + t];
    }
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
  for (int64_t d = 0; d < dim; ++d) out[d] = 0;
  for (int64_t b = first_block; b < num_blocks; ++b) {
    const float* values = cache.Values(layer, query.blocks[b], kv_head);
    const int64_t live = query.num_keys - b * kTokens;
    const int64_t tokens = live < kTokens ? live : kTokens;
    for (int64_t t = 0; t < tokens; ++t) {
      const float weight = scores[b * kTokens + t];
      for (int64_t d = 0; d < dim; ++d) out[d] += weight * values[t * dim + d];
    }
  }
  const float inverse = 1.0F / total;
  for (int64_t d = 0; d < dim; ++d) out[d] *= inverse;
}

}  // namespace

void PagedAttention(const KvCache& cache, int64_t layer, int64_t window,
                    const std::vector<PagedQuery>& queries, int64_t num_heads, const float* q,
                    int64_t q_row_stride, float* out) {
  const int64_t dim = cache.shape().head_dim;
  const int64_t group = num_heads / cache.shape().num_kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  int64_t most_keys = 0;
  for (const PagedQuery& query : queries) most_keys = std::max(most_keys, query.num_keys);
  std::vector<float> scores(static_cast<size_t>((most_keys + kTokens - 1) / kTokens * kTokens));
  for (size_t i = 0; i < queries.size(); ++i) {
    const float* q_row = q + static_cast<int64_t>(i) * q_row_stride;
    float* out_row = out + static_cast<int64_t>(i) * num_heads * dim;
    const int64_t first_key = window > 0 ? std::max<int64_t>(0, queries[i].num_keys - window) : 0;
    for (int64_t h = 0; h < num_heads; ++h) {
      AttendHead(cache, layer, h / group, queries[i], first_key, dim, scale, q_row + h * dim,
                 scores.data(), out_row + h * dim);
    }
  }
}

}  // namespace freshet
