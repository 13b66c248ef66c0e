#include "model/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/gpu.h"
#include "model/gpu_memory.h"

namespace freshet {
namespace {

constexpr char kCudaLibrary[] = "libtorch_cuda.so";
constexpr char kDriverFile[] = "/dev/nvidiactl";
constexpr int kLowestMajor = 8;  // compute capability, for bf16

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
  return InvalidArgument("device ", name, " is not auto, cpu, cuda or cuda:N");
}

// Loaded before ATen looks for a GPU, which it does only once.
absl::Status LoadCuda() {
  static const std::string error = [] {
    // cuBLAS computes the same bits every time only with a workspace of a fixed size.
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    return std::string(dlopen(kCudaLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr ? dlerror() : "");
  }();
  if (error.empty()) return absl::OkStatus();
  return FailedPrecondition("device cuda: cannot load ", kCudaLibrary, ": ", error.substr(0, 300),
                            ". PyTorch's CUDA libraries must be on LD_LIBRARY_PATH");
}

// Of the CUDA runtime, which LibTorch has loaded. Null if it has no such function.
template <typename Function>
Function* CudaFunction(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

absl::Status CheckCapability(int gpu) {
  constexpr int kMajor = 75;  // cudaDevAttrComputeCapabilityMajor
  constexpr int kMinor = 76;
  auto* const query = CudaFunction<int(int*, int, int)>("cudaDeviceGetAttribute");
  int major = 0;
  int minor = 0;
  if (query == nullptr || query(&major, kMajor, gpu) != 0 || query(&minor, kMinor, gpu) != 0) {
    return FailedPrecondition("device cuda:", gpu, ": the CUDA runtime does not describe it");
  }
  if (major >= kLowestMajor) return absl::OkStatus();
  return FailedPrecondition("device cuda:", gpu, " has compute capability ", major, ".", minor,
                            "; at least ", kLowestMajor, ".0 is needed");
}

// Set once LibTorch has its allocator of GPU memory.
std::atomic<bool> cuda_opened = false;

at::Device ChooseDevice() {
  static const at::Device chosen = [] {
    if (!std::filesystem::exists(kDriverFile)) return at::Device(at::kCPU);
    const absl::StatusOr<at::Device> gpu = OpenDevice("cuda");
    if (gpu.ok()) return *gpu;
    FRESHET_LOG(Warning) << "event=gpu_not_used reason=" << LogQuoted(Message(gpu.status()));
    return at::Device(at::kCPU);
  }();
  return chosen;
}

}  // namespace

absl::StatusOr<at::Device> OpenDevice(const std::string& name) {
  if (name == "auto") return ChooseDevice();
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
  FRESHET_RETURN_IF_ERROR(CheckCapability(device.index));
  cuda_opened = true;
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.index));
}

absl::StatusOr<std::optional<Gpu>> FindGpu(const std::string& device) {
  FRESHET_ASSIGN_OR_RETURN(const at::Device found, OpenDevice(device));
  if (found.is_cpu()) return std::nullopt;
  auto* const query = CudaFunction<int(size_t*, size_t*)>("cudaMemGetInfo");
  if (query == nullptr) return Internal("the CUDA runtime is not loaded");
  const c10::DeviceGuard guard(found);
  size_t free = 0;
  size_t total = 0;
  const int error = query(&free, &total);
  if (error != 0) return Internal("cudaMemGetInfo of ", found.str(), " failed with error ", error);
  return Gpu{found.str(), static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

std::vector<GpuMemory> ReadGpuMemory() {
  if (!cuda_opened) return {};
  return ReadGpuMemoryOf(*c10::getDeviceAllocator(at::kCUDA),
                         at::detail::getCUDAHooks().deviceCount());
}

}  // namespace freshet
