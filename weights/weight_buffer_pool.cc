#include "weights/weight_buffer_pool.h"

#include <new>
#include <utility>

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<std::shared_ptr<WeightBuffer>> WeightBufferPool::Get(size_t size) {
  MutexLock lock(mu_);
  for (auto& buffer : buffers_) {
    // The copy is made after the last holder's release, so the holder's reads happen before our
    // writes.
    if (buffer.use_count() == 1 && buffer->size == size) return buffer;
  }
  // Drop free buffers of other sizes. Held ones are reused after their release.
  std::erase_if(buffers_, [](const auto& buffer) { return buffer.use_count() == 1; });
  auto buffer = std::make_shared<WeightBuffer>();
  try {
    buffer->data = std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for ", size, " bytes of weights");
  }
  buffer->size = size;
  buffers_.push_back(buffer);
  return buffer;
}

WeightBytes Freeze(std::shared_ptr<const WeightBuffer> buffer) {
  const std::byte* data = buffer->data.get();
  const size_t size = buffer->size;
  return std::make_shared<const WeightArena>(data, size, std::move(buffer));
}

}  // namespace freshet
