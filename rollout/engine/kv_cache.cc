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
      head_stride_(2 * shape.head_dim * kKvBlockTokens),
      layer_stride_(shape.num_kv_heads * head_stride_),
      block_stride_(shape.num_layers * layer_stride_) {
  // calloc maps zero pages lazily, so unused blocks cost no memory.
  const size_t size = shape.format == KvFormat::kFloat32 ? sizeof(float) : sizeof(uint16_t);
  const size_t bytes = static_cast<size_t>(num_blocks * block_stride_) * size;
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
  const int64_t dim = shape_.head_dim;
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      const T* source = Head<T>(layer, from, head);
      T* target = Head<T>(layer, to, head);
      for (int64_t d = 0; d < dim; ++d) {
        std::copy_n(source + d * kKvBlockTokens, tokens, target + d * kKvBlockTokens);
      }
      const int64_t values = dim * kKvBlockTokens;
      std::copy_n(source + values, tokens * dim, target + values);
    }
  }
}

void KvCache::Write(int64_t layer, int32_t block, int64_t slot, const float* key,
                    const float* value) {
  const int64_t dim = shape_.head_dim;
  const auto write = [&](auto* target, int64_t head, const auto& round) {
    for (int64_t d = 0; d < dim; ++d)
      target[d * kKvBlockTokens + slot] = round(key[head * dim + d]);
    target += dim * kKvBlockTokens + slot * dim;
    for (int64_t d = 0; d < dim; ++d) target[d] = round(value[head * dim + d]);
  };
  for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
    if (shape_.format == KvFormat::kFloat32) {
      write(Head<float>(layer, block, head), head, [](float number) { return number; });
    } else {
      write(Head<uint16_t>(layer, block, head), head, RoundToBf16);
    }
  }
}

}  // namespace freshet
