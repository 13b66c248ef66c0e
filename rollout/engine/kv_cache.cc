#include "rollout/engine/kv_cache.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/log.h"

namespace freshet {

void KvCache::FreeDeleter::operator()(float* data) const { std::free(data); }

KvCache::KvCache(const KvCacheShape& shape, int64_t num_blocks)
    : shape_(shape),
      num_blocks_(num_blocks),
      head_stride_(2 * shape.head_dim * kKvBlockTokens),
      layer_stride_(shape.num_kv_heads * head_stride_),
      block_stride_(shape.num_layers * layer_stride_),
      references_(static_cast<size_t>(num_blocks), 0) {
  // Zeroed, because slots beyond a sequence's end are read with weight zero. calloc maps zero pages
  // lazily, so unused blocks cost no memory.
  const size_t bytes = static_cast<size_t>(num_blocks * block_stride_) * sizeof(float);
  data_.reset(static_cast<float*>(std::calloc(1, bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
  for (int32_t block = static_cast<int32_t>(num_blocks) - 1; block >= 0; --block) {
    free_.push_back(block);
  }
}

int32_t KvCache::Allocate() {
  FRESHET_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void KvCache::AddReference(int32_t block) { ++references_[static_cast<size_t>(block)]; }

void KvCache::Release(int32_t block) {
  int32_t& references = references_[static_cast<size_t>(block)];
  FRESHET_CHECK(references > 0);
  if (--references == 0) free_.push_back(block);
}

void KvCache::CopyPrefix(int32_t from, int32_t to, int64_t tokens) {
  const int64_t dim = shape_.head_dim;
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      const float* source = Head(layer, from, head);
      float* target = Head(layer, to, head);
      for (int64_t d = 0; d < dim; ++d) {
        std::memcpy(target + d * kKvBlockTokens, source + d * kKvBlockTokens,
                    static_cast<size_t>(tokens) * sizeof(float));
      }
      const int64_t values = dim * kKvBlockTokens;
      std::memcpy(target + values, source + values,
                  static_cast<size_t>(tokens * dim) * sizeof(float));
    }
  }
}

void KvCache::Write(int64_t layer, int32_t block, int64_t slot, const float* key,
                    const float* value) {
  const int64_t dim = shape_.head_dim;
  for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
    float* target = Head(layer, block, head);
    for (int64_t d = 0; d < dim; ++d) target[d * kKvBlockTokens + slot] = key[head * dim + d];
    std::memcpy(target + dim * kKvBlockTokens + slot * dim, value + head * dim,
                static_cast<size_t>(dim) * sizeof(float));
  }
}

}  // namespace freshet
