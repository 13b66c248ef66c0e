#ifndef FRESHET_WEIGHTS_CUDA_OPEN_DEVICE_MEMORY_H_
#define FRESHET_WEIGHTS_CUDA_OPEN_DEVICE_MEMORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// An OpenDeviceMemory for LibTorch's devices. Loads LibTorch's CUDA library if `device` means a
// GPU.
absl::StatusOr<std::shared_ptr<DeviceMemory>> OpenGpu(const std::string& device);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_CUDA_OPEN_DEVICE_MEMORY_H_
