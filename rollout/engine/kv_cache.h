#ifndef FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_
#define FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_

#include <cstdint>
#include <list>
#include <vector>

#include "model/kv_cache_size.h"
#include "rollout/engine/kernels/matrix.h"

namespace freshet {

enum class KvFormat { kFloat32, kBfloat16 };

struct KvCacheShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvFormat format = KvFormat::kFloat32;
};

// Paged store of keys and values. A block holds kKvBlockTokens tokens of all layers and
// heads. Sequences list their blocks in a table; blocks of a shared prompt are reference-counted,
// not copied. Within a block and head, keys are stored transposed as [head_dim][tokens] and values
// as [tokens][head_dim], so that the attention kernel reads both sequentially. Not thread-safe.
class KvCache {
 public:
  KvCache(const KvCacheShape& shape, int64_t num_blocks);

  // Returns a free block with one reference. Callers reserve beforehand
  // (EngineScheduler::Admissible); running out is a bug. Prefers blocks that are not retained, then
  // the one that has been free for the longest time.
  int32_t Allocate();
  // A free block keeps its contents and is no longer free.
  void AddReference(int32_t block);
  void Release(int32_t block);
  // Whether a block's contents may be wanted once it is free. Allocate clears the flag.
  void SetRetained(int32_t block, bool retained);
  // Copies the first `tokens` tokens of a block, all layers.
  void CopyPrefix(int32_t from, int32_t to, int64_t tokens);

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

  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  const KvCacheShape& shape() const { return shape_; }

 private:
  template <typename T>
  T* Head(int64_t layer, int32_t block, int64_t kv_head) const {
    return reinterpret_cast<T*>(data_.get()) + block * block_stride_ + layer * layer_stride_ +
           kv_head * head_stride_;
  }
  template <typename T>
  void CopyPrefixOf(int32_t from, int32_t to, int64_t tokens);

  KvCacheShape shape_;
  int64_t num_blocks_;
  int64_t head_stride_;  // in numbers
  int64_t layer_stride_;
  int64_t block_stride_;
  AlignedBytes data_;
  struct Block {
    int32_t references = 0;
    bool retained = false;
    std::list<int32_t>::iterator place;  // in free_ or used_
  };

  std::vector<Block> blocks_;
  std::list<int32_t> free_;  // in the order of allocation
  std::list<int32_t> used_;  // keeps the list nodes, so that nothing is allocated later
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KV_CACHE_H_
