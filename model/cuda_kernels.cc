#include "model/cuda_kernels.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr char kLibrary[] = "libfreshet_cuda.so";

void* Open() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = program.parent_path() / kLibrary;
  const bool exists = std::filesystem::exists(beside, error);
  return ::dlopen(exists ? beside.c_str() : kLibrary, RTLD_NOW | RTLD_LOCAL);
}

// Returns why it cannot be used, or "".
std::string Load(CudaKernels& kernels) {
  void* const handle = Open();
  if (handle == nullptr) return ::dlerror();
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("freshet_cuda_version", kernels.version);
  if (!missing.empty()) return "it has no " + missing;
  if (kernels.version() != FRESHET_CUDA_VERSION) {
    return StrCat("it has version ", kernels.version(), ", not ", FRESHET_CUDA_VERSION);
  }
  find("freshet_cuda_error", kernels.error_text);
  find("freshet_swiglu", kernels.swiglu);
  find("freshet_swiglu_gradient", kernels.swiglu_gradient);
  find("freshet_rms_norm", kernels.rms_norm);
  find("freshet_rms_norm_gradient", kernels.rms_norm_gradient);
  find("freshet_rope", kernels.rope);
  find("freshet_gather_sum", kernels.gather_sum);
  find("freshet_decode_embed", kernels.decode_embed);
  find("freshet_decode_rope", kernels.decode_rope);
  find("freshet_decode_attention", kernels.decode_attention);
  find("freshet_graph_begin", kernels.graph_begin);
  find("freshet_graph_end", kernels.graph_end);
  find("freshet_graph_launch", kernels.graph_launch);
  find("freshet_graph_destroy", kernels.graph_destroy);
  find("freshet_upload", kernels.upload);
  return missing.empty() ? "" : "it has no " + missing;
}

}  // namespace

const CudaKernels* CudaKernels::Get() {
  static const std::unique_ptr<const CudaKernels> loaded = [] {
    auto kernels = std::make_unique<CudaKernels>();
    const std::string reason = Load(*kernels);
    if (reason.empty()) return kernels;
    FRESHET_LOG(Warning) << "event=cuda_kernels_not_used library=" << kLibrary
                         << " reason=" << LogQuoted(reason);
    kernels.reset();
    return kernels;
  }();
  return loaded.get();
}

void CudaKernels::Check(int error, const char* what) const {
  TORCH_CHECK(error == 0, "CUDA: ", what, ": ", error_text(error));
}

void* CurrentCudaStream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

}  // namespace freshet
