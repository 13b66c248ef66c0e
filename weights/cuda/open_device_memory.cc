#include "weights/cuda/open_device_memory.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/gpu.h"
#include "weights/cuda/cuda_memory.h"

namespace freshet {

absl::StatusOr<std::shared_ptr<DeviceMemory>> OpenGpu(const std::string& device) {
  FRESHET_ASSIGN_OR_RETURN(const std::optional<Gpu> gpu, FindGpu(device));
  if (!gpu.has_value()) return FailedPrecondition("this process computes on the CPU");
  CudaMemoryOptions options;
  absl::string_view number = gpu->device;
  if (!absl::ConsumePrefix(&number, "cuda:") || !absl::SimpleAtoi(number, &options.device)) {
    return Internal("device ", gpu->device, " has no number");
  }
  return OpenCudaMemory(options);
}

}  // namespace freshet
