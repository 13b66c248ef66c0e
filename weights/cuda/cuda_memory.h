#ifndef FRESHET_WEIGHTS_CUDA_CUDA_MEMORY_H_
#define FRESHET_WEIGHTS_CUDA_CUDA_MEMORY_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// Of the CUDA runtime's C interface, declared here because it is loaded at run time.
struct CudaIpcHandle {  // cudaIpcMemHandle_t
  std::array<char, kDeviceHandleBytes> bytes{};
};

struct CudaMemoryOptions {
  int device = 0;
  std::string library = "libcudart.so.13";  // the CUDA runtime, loaded at run time
  size_t piece_bytes = size_t{8} << 20;  // of pinned host memory that Write copies through, twice
  absl::Duration patience = absl::Seconds(10);  // after which the copy of a piece counts as hanging
};

// Memory of an NVIDIA GPU. Takes the GPU's context, and the pinned memory with the first Write.
// Leaves the calling thread's current device as it is. UNAVAILABLE: the library, one of its
// functions or the GPU is missing. It stays loaded.
absl::StatusOr<std::shared_ptr<DeviceMemory>> OpenCudaMemory(const CudaMemoryOptions& options);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_CUDA_CUDA_MEMORY_H_
