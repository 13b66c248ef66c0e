#include "rollout/engine/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "model/dtype.h"

namespace freshet {

KvCache::KvCache(const KvCacheShape& shape, int64_t num_blocks)
    : KvBlockPool(num_blocks),
      shape_(shape),
      block_stride_(2 * shape.head_dim * kKvBlockTokens),
      head_stride_(num_blocks * block_stride_),
      layer_stride_(shape.num_kv_heads * head_stride_) {
  // calloc maps zero pages lazily, so unused blocks cost no memory.
  const size_t size = shape.format == KvFormat::kFloat32 ? sizeof(float) : sizeof(uint16_t);
  const size_t bytes = static_cast<size_t>(shape.num_layers * layer_stride_) * size;
  data_.reset(static_cast<std::byte*>(std::calloc(1, bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
}

void KvCache::CopyPrefix(int32_t from, int32_t to, int64_t tokens) {
  if (shape_.format == KvFormat::kFloat32) {
    CopyPrefixOf<float>(from, to, tokens);
  } else {
    CopyPrefixOf<uint16_t>(from, to, tokens);
  }
}

template <typename T>
void KvCache::CopyPrefixOf(int32_t from, int32_t to, int64_t tokens) {
  constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;
  const int64_t dim = shape_.head_dim;
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      const T* source = Head<T>(layer, from, head);
      T* target = Head<T>(layer, to, head);
      for (int64_t d = 0; d < dim; d += kPair) {
        std::copy_n(source + d * kKvBlockTokens, tokens * kPair, target + d * kKvBlockTokens);
      }
      // Of the last pair, the second token's values are copied too; they are written later.
      const int64_t values = dim * kKvBlockTokens;
      std::copy_n(source + values, (tokens + kPair - 1) / kPair * kPair * dim, target + values);
    }
  }
}

void KvCache::Write(int64_t layer, int32_t block, int64_t slot, const float* key,
                    const float* value) {
  const int64_t dim = shape_.head_dim;
  for (int64_t head = 0; head < shape_.num_kv_heads; ++head, key += dim, value += dim) {
    if (shape_.format == KvFormat::kFloat32) {
      auto* keys = Head<float>(layer, block, head) + slot;
      for (int64_t d = 0; d < dim; ++d) keys[d * kKvBlockTokens] = key[d];
      std::copy_n(value, dim, Head<float>(layer, block, head) + (kKvBlockTokens + slot) * dim);
    } else {
      auto* keys = Head<uint16_t>(layer, block, head) + 2 * slot;
      auto* values =
          Head<uint16_t>(layer, block, head) + (kKvBlockTokens + slot / 2 * 2) * dim + slot % 2;
      for (int64_t d = 0; d < dim; d += 2) {
        keys[d * kKvBlockTokens] = RoundToBf16(key[d]);
        keys[d * kKvBlockTokens + 1] = RoundToBf16(key[d + 1]);
      }
      for (int64_t d = 0; d < dim; ++d) values[2 * d] = RoundToBf16(value[d]);
    }
  }
}

}  // namespace freshet
