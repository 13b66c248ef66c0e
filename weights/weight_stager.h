#ifndef FRESHET_WEIGHTS_WEIGHT_STAGER_H_
#define FRESHET_WEIGHTS_WEIGHT_STAGER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "weights/manifest.h"
#include "weights/weight_buffer_pool.h"

namespace freshet {

// Stores the bytes of a version for the publisher. Confined to the publisher's thread.
class WeightStager {
 public:
  virtual ~WeightStager() = default;

  // Copies `source`, which may change afterwards, and fills sizes and hashes in `manifest`.
  // RESOURCE_EXHAUSTED: out of memory.
  virtual absl::StatusOr<WeightBytes> Stage(std::span<const std::byte> source, int64_t bucket_bytes,
                                            WeightManifest& manifest) = 0;
};

// Stages on the heap. Reuses buffers that no engine holds.
class HeapStager final : public WeightStager {
 public:
  absl::StatusOr<WeightBytes> Stage(std::span<const std::byte> source, int64_t bucket_bytes,
                                    WeightManifest& manifest) override;

 private:
  WeightBufferPool pool_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_STAGER_H_
