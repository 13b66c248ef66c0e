#ifndef FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_
#define FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "weights/weight_arena.h"

namespace freshet {

// Memory for a version that is still being written; Freeze turns it into a WeightArena.
struct WeightBuffer {
  std::unique_ptr<std::byte[]> data;
  size_t size = 0;
};

// Reuses buffers that are no longer held, so that a process receiving many versions only touches
// fresh pages for the first ones. Keeps at most one free buffer, of the last requested size.
// Thread-safe.
class WeightBufferPool {
 public:
  // Returns a buffer of `size` bytes with unspecified contents for exclusive use.
  // RESOURCE_EXHAUSTED: out of memory.
  absl::StatusOr<std::shared_ptr<WeightBuffer>> Get(size_t size) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::vector<std::shared_ptr<WeightBuffer>> buffers_ ABSL_GUARDED_BY(mu_);
};

// `buffer` as an arena. The caller must not write to it afterwards.
WeightBytes Freeze(std::shared_ptr<const WeightBuffer> buffer);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_BUFFER_POOL_H_
