#ifndef FRESHET_MODEL_GPU_H_
#define FRESHET_MODEL_GPU_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/gpu_memory.h"

namespace freshet {

struct Gpu {
  std::string device;  // such as "cuda:0"
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// The GPU that `device` means for OpenDevice; none if it means the CPU. Errors of OpenDevice.
// INTERNAL: CUDA's error. Thread-safe.
absl::StatusOr<std::optional<Gpu>> FindGpu(const std::string& device);

// The GPUs that this process has allocated tensors on, with a GpuMemoryReader's guarantees. One
// whose state CUDA does not tell is left out.
std::vector<GpuMemory> ReadGpuMemory();

}  // namespace freshet

#endif  // FRESHET_MODEL_GPU_H_
