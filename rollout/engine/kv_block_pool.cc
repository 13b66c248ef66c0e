#include "rollout/engine/kv_block_pool.h"

#include <cstddef>

#include "base/log.h"

namespace freshet {

KvBlockPool::KvBlockPool(int64_t num_blocks) : blocks_(static_cast<size_t>(num_blocks)) {
  for (int32_t block = 0; block < static_cast<int32_t>(num_blocks); ++block) {
    blocks_[static_cast<size_t>(block)].place = free_.insert(free_.end(), block);
  }
}

int32_t KvBlockPool::Allocate() {
  FRESHET_CHECK(!free_.empty());
  const int32_t block = free_.front();
  blocks_[static_cast<size_t>(block)].retained = false;
  AddReference(block);
  return block;
}

void KvBlockPool::AddReference(int32_t block) {
  Block& state = blocks_[static_cast<size_t>(block)];
  if (state.references++ == 0) used_.splice(used_.end(), free_, state.place);
}

void KvBlockPool::Release(int32_t block) {
  Block& state = blocks_[static_cast<size_t>(block)];
  FRESHET_CHECK(state.references > 0);
  if (--state.references > 0) return;
  // Other blocks are used again at once, because their memory is mapped and in the CPU's cache.
  free_.splice(state.retained ? free_.end() : free_.begin(), used_, state.place);
}

void KvBlockPool::SetRetained(int32_t block, bool retained) {
  Block& state = blocks_[static_cast<size_t>(block)];
  if (state.retained && !retained && state.references == 0) {
    free_.splice(free_.begin(), free_, state.place);
  }
  state.retained = retained;
}

}  // namespace freshet
