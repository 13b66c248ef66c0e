#ifndef FRESHET_ROLLOUT_ENGINE_KV_BLOCK_POOL_H_
#define FRESHET_ROLLOUT_ENGINE_KV_BLOCK_POOL_H_

#include <cstdint>
#include <list>
#include <vector>

namespace freshet {

// Allocates the blocks of a paged cache of keys and values; a subclass holds their contents, on
// one device. A block holds kKvBlockTokens tokens of all layers and heads. Sequences list their
// blocks in a table; blocks of a shared prompt are reference-counted, not copied. Not thread-safe.
class KvBlockPool {
 public:
  explicit KvBlockPool(int64_t num_blocks);
  virtual ~KvBlockPool() = default;
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

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
  virtual void CopyPrefix(int32_t from, int32_t to, int64_t tokens) = 0;

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

 private:
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

#endif  // FRESHET_ROLLOUT_ENGINE_KV_BLOCK_POOL_H_
