#ifndef FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_
#define FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "weights/weight_arena.h"

namespace freshet {

// Memory that a version is written into before it becomes a WeightArena.
struct WeightBuffer {
  std::unique_ptr<std::byte[]> data;
  size_t size = 0;
};

// Hands out buffers and reuses those that nobody holds any more: a process that gets version after
// version touches fresh pages only for the first ones. Holds as many buffers as versions are in
// use, and at most one free one of the size asked for last. Thread-safe.
class WeightBufferPool {
 public:
  // A buffer of `size` bytes, whose contents are whatever was there before, for one holder.
  // RESOURCE_EXHAUSTED when there is no memory.
  absl::StatusOr<std::shared_ptr<WeightBuffer>> Get(size_t size) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::vector<std::shared_ptr<WeightBuffer>> buffers_ ABSL_GUARDED_BY(mu_);
};

// `buffer` as an arena. Nobody may write into it from now on.
WeightBytes Freeze(std::shared_ptr<const WeightBuffer> buffer);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_
