#ifndef FRESHET_ROLLOUT_ENGINE_PREFIX_CACHE_H_
#define FRESHET_ROLLOUT_ENGINE_PREFIX_CACHE_H_

#include <cstdint>
#include <vector>

#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kv_block_pool.h"
#include "rollout/engine/prefix_index.h"

namespace freshet {

// Allocates the cache blocks of sequences so that later sequences of the same lane can share the
// blocks of a common prefix. A block that no sequence holds keeps its contents until it is needed
// for other tokens. A table lists the blocks of a sequence in the order of its tokens. Not
// thread-safe.
class PrefixCache {
 public:
  // `pool` must outlive this object, which allocates all its blocks. Without `shares`, blocks are
  // only allocated and released.
  PrefixCache(KvBlockPool& pool, bool shares)
      : pool_(pool), shares_(shares), index_(pool.num_blocks()) {}

  // See KvBlockPool::Allocate.
  int32_t Allocate();
  // Releases the blocks, the last one first: it is then the first to be taken for other tokens.
  void Release(const std::vector<int32_t>& table);

  // References the blocks of the longest prefix of `tokens` that is in the cache, except the last
  // token, from the `skip`th block on, and appends them to `table`.
  void Reuse(Lane lane, const std::vector<int32_t>& tokens, int64_t skip,
             std::vector<int32_t>& table);
  // Makes the blocks that hold `tokens` available to later sequences.
  void Retain(Lane lane, const std::vector<int32_t>& tokens, const std::vector<int32_t>& table);
  // No later sequence of the lane finds what is in the cache.
  void Clear(Lane lane);

 private:
  KvBlockPool& pool_;
  const bool shares_;
  PrefixIndex index_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PREFIX_CACHE_H_
