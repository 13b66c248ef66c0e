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
      blocks_(static_cast<size_t>(num_blocks)) {
  // calloc maps zero pages lazily, so unused blocks cost no memory.
  const size_t bytes = static_cast<size_t>(num_blocks * block_stride_) * sizeof(float);
  data_.reset(static_cast<float*>(std::calloc(1, bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
  for (int32_t block = 0; block < static_cast<int32_t>(num_blocks); ++block) {
    blocks_[static_cast<size_t>(block)].place = free_.insert(free_.end(), block);
  }
}

int32_t KvCache::Allocate() {
  FRESHET_CHECK(!free_.empty());
  const int32_t block = free_.front();
  blocks_[static_cast<size_t>(block)].retained = false;
  AddReference(block);
  return block;
}

void KvCache::AddReference(int32_t block) {
  Block& state = blocks_[static_cast<size_t>(block)];
  if (state.references++ == 0) used_.splice(used_.end(), free_, state.place);
}

void KvCache::Release(int32_t block) {
  Block& state = blocks_[static_cast<size_t>(block)];
  FRESHET_CHECK(state.references > 0);
  if (--state.references > 0) return;
  // Other blocks are used again at once, because their memory is mapped and in the CPU's cache.
  free_.splice(state.retained ? free_.end() : free_.begin(), used_, state.place);
}

void KvCache::SetRetained(int32_t block, bool retained) {
  Block& state = blocks_[static_cast<size_t>(block)];
  if (state.retained && !retained && state.references == 0) {
    free_.splice(free_.begin(), free_, state.place);
  }
  state.retained = retained;
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
