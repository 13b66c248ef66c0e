#ifndef FRESHET_BASE_GPU_MEMORY_H_
#define FRESHET_BASE_GPU_MEMORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace freshet {

// Memory of a GPU that this process uses.
struct GpuMemory {
  std::string device;           // such as "cuda:0"
  int64_t total_bytes = 0;      // of the device
  int64_t free_bytes = 0;       // of the device, for all processes
  int64_t allocated_bytes = 0;  // of tensors of this process
  int64_t reserved_bytes = 0;   // those, and what its allocator keeps for the next ones
};

// Returns the GPUs that this process has allocated tensors on. Thread-safe.
using GpuMemoryReader = std::function<std::vector<GpuMemory>()>;

}  // namespace freshet

#endif  // FRESHET_BASE_GPU_MEMORY_H_
