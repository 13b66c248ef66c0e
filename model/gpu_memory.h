#ifndef FRESHET_MODEL_GPU_MEMORY_H_
#define FRESHET_MODEL_GPU_MEMORY_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

#include "base/gpu_memory.h"

namespace freshet {

// Those of the first `num_gpus` GPUs that `allocator`, LibTorch's, has allocated memory on. Others
// are not asked, because that would take memory on them. Thread-safe.
std::vector<GpuMemory> ReadGpuMemoryOf(c10::DeviceAllocator& allocator, int num_gpus);

}  // namespace freshet

#endif  // FRESHET_MODEL_GPU_MEMORY_H_
