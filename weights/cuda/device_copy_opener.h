#ifndef FRESHET_WEIGHTS_CUDA_DEVICE_COPY_OPENER_H_
#define FRESHET_WEIGHTS_CUDA_DEVICE_COPY_OPENER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "weights/cuda/device_copies.h"
#include "weights/cuda/device_memory.h"
#include "weights/weight_arena.h"

namespace freshet {

// Opens the trainer's copies on the engine's GPU. Thread-safe.
class DeviceCopyOpener {
 public:
  // `memory`: of the GPU that the engine computes on; an error: why there is none.
  explicit DeviceCopyOpener(absl::StatusOr<std::shared_ptr<DeviceMemory>> memory)
      : memory_(std::move(memory)) {}

  // `bytes`, of MemoryFileReader::Map with `path`, with the copy that `offer` describes: it is open
  // as long as the result, which keeps the file's lock until it is closed. Nothing of it is
  // verified (DeviceCopy::digest). If it cannot be opened, `bytes` alone; the log says why, once
  // per reason.
  WeightBytes Attach(WeightBytes bytes, const std::string& path, const DeviceOffer& offer)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<WeightBytes> Open(const WeightBytes& bytes, const std::string& path,
                                   const DeviceOffer& offer) const;

  const absl::StatusOr<std::shared_ptr<DeviceMemory>> memory_;
  Mutex mu_;
  std::string reason_ ABSL_GUARDED_BY(mu_);  // that was logged last
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_CUDA_DEVICE_COPY_OPENER_H_
