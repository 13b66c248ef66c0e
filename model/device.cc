#include "model/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <exception>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr char kCudaLibrary[] = "libtorch_cuda.so";

struct DeviceName {
  bool cuda = false;
  int index = 0;
};

absl::StatusOr<DeviceName> ParseDeviceName(const std::string& name) {
  DeviceName device;
  if (name == "cpu") return device;
  absl::string_view rest = name;
  device.cuda = absl::ConsumePrefix(&rest, "cuda");
  const bool numbered = device.cuda && absl::ConsumePrefix(&rest, ":");
  if (device.cuda && !numbered && rest.empty()) return device;
  if (numbered && absl::SimpleAtoi(rest, &device.index) && device.index >= 0) return device;
  return InvalidArgument("device ", name, " is not cpu, cuda or cuda:N");
}

// Loaded before ATen looks for a GPU, which it does only once.
absl::Status LoadCuda() {
  static const std::string error = [] {
    return std::string(dlopen(kCudaLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr ? dlerror() : "");
  }();
  if (error.empty()) return absl::OkStatus();
  return FailedPrecondition("device cuda: cannot load ", kCudaLibrary, ": ", error.substr(0, 300),
                            ". PyTorch's CUDA libraries must be on LD_LIBRARY_PATH");
}

}  // namespace

absl::StatusOr<at::Device> OpenDevice(const std::string& name) {
  FRESHET_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(name));
  if (!device.cuda) return at::Device(at::kCPU);
  FRESHET_RETURN_IF_ERROR(LoadCuda());
  int gpus = 0;
  try {
    const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
    if (hooks.hasCUDA()) gpus = static_cast<unsigned char>(hooks.deviceCount());
  } catch (const std::exception& error) {
    return FailedPrecondition("device ", name, ": ", std::string(error.what()).substr(0, 300));
  }
  if (device.index >= gpus) {
    return FailedPrecondition("device ", name, " does not exist: the driver offers ", gpus,
                              gpus == 1 ? " GPU" : " GPUs");
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.index));
}

}  // namespace freshet
