#ifndef FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_
#define FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_

#include <cstdint>

#include "model/kv_cache_size.h"
#include "rollout/engine/kernels/matrix.h"
#include "rollout/engine/kv_block_pool.h"

namespace freshet {

enum class KvFormat { kFloat32, kBfloat16 };

struct KvCacheShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvFormat format = KvFormat::kFloat32;
};

// Keys and values in the memory of the CPU, for its kernels, as [layers][heads][blocks][2]. A
// block's fp32 keys are [head_dim][tokens] and its values [tokens][head_dim], so that the attention
// kernel reads both sequentially; in bf16, two dimensions of a key and two tokens' values are next
// to each other, as dot products of pairs need them: [head_dim / 2][tokens][2] and
// [tokens / 2][head_dim][2].
class KvCache final : public KvBlockPool {
 public:
  // Throws std::bad_alloc.
  KvCache(const KvCacheShape& shape, int64_t num_blocks);

  void CopyPrefix(int32_t from, int32_t to, int64_t tokens) override;

  // Writes one token's key and value, each [num_kv_heads][head_dim], rounded to the format.
  void Write(int64_t layer, int32_t block, int64_t slot, const float* key, const float* value);

  // Base of a block's keys and values for one layer and head. T is float or, for bf16, uint16_t.
  template <typename T>
  const T* Keys(int64_t layer, int32_t block, int64_t kv_head) const {
    return Head<T>(layer, block, kv_head);
  }
  template <typename T>
  const T* Values(int64_t layer, int32_t block, int64_t kv_head) const {
    return Head<T>(layer, block, kv_head) + shape_.head_dim * kKvBlockTokens;
  }

  const KvCacheShape& shape() const { return shape_; }

 private:
  template <typename T>
  T* Head(int64_t layer, int32_t block, int64_t kv_head) const {
    return reinterpret_cast<T*>(data_.get()) + layer * layer_stride_ + kv_head * head_stride_ +
           block * block_stride_;
  }
  template <typename T>
  void CopyPrefixOf(int32_t from, int32_t to, int64_t tokens);

  KvCacheShape shape_;
  int64_t block_stride_;  // in numbers
  int64_t head_stride_;
  int64_t layer_stride_;
  AlignedBytes data_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_
