#include "weights/cuda/cuda_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kSuccess = 0;              // cudaSuccess
constexpr int kNoMemory = 2;             // cudaErrorMemoryAllocation
constexpr int kNotReady = 600;           // cudaErrorNotReady
constexpr int kHostToDevice = 1;         // cudaMemcpyHostToDevice
constexpr unsigned kNonBlocking = 1;     // cudaStreamNonBlocking: does not wait for other streams
constexpr unsigned kLazyPeers = 1;       // cudaIpcMemLazyEnablePeerAccess, the only flag there is
constexpr size_t kUuidOffset = 256;      // of cudaDeviceProp::uuid, in CUDA 10 to 13
constexpr size_t kPropertyBytes = 8192;  // more than a cudaDeviceProp has
// CUDA places smaller allocations in blocks of this size, and other processes open whole blocks.
constexpr size_t kBlockBytes = size_t{2} << 20;
constexpr std::chrono::microseconds kPollPeriod(200);

using Stream = void*;  // cudaStream_t

// The parts of the CUDA runtime that CudaMemory uses; a cudaError_t is an int here.
struct Runtime {
  int (*get_device)(int* device) = nullptr;
  int (*set_device)(int device) = nullptr;
  int (*get_properties)(void* properties, int device) = nullptr;
  int (*allocate)(void** memory, size_t size) = nullptr;
  int (*free)(void* memory) = nullptr;
  int (*allocate_host)(void** memory, size_t size) = nullptr;
  int (*free_host)(void* memory) = nullptr;
  int (*copy)(void* to, const void* from, size_t size, int kind, Stream stream) = nullptr;
  int (*create_stream)(Stream* stream, unsigned flags) = nullptr;
  int (*destroy_stream)(Stream stream) = nullptr;
  int (*query_stream)(Stream stream) = nullptr;
  int (*get_handle)(CudaIpcHandle* handle, void* memory) = nullptr;
  int (*open_handle)(void** memory, CudaIpcHandle handle, unsigned flags) = nullptr;
  int (*close_handle)(void* memory) = nullptr;
  int (*last_error)() = nullptr;
  const char* (*error_text)(int error) = nullptr;

  // OK, or the error of `call`. Clears it, so that LibTorch does not report it for a call of its
  // own.
  absl::Status Check(const char* call, int error) const {
    if (error == kSuccess) return absl::OkStatus();
    last_error();
    return StatusOf(absl::StatusCode::kUnavailable, "CUDA: ", call, ": ", error_text(error));
  }
};

absl::StatusOr<Runtime> LoadRuntime(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return StatusOf(absl::StatusCode::kUnavailable, library, " cannot be used: ", ::dlerror());
  }
  Runtime runtime;
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("cudaGetDevice", runtime.get_device);
  find("cudaSetDevice", runtime.set_device);
  find("cudaGetDeviceProperties", runtime.get_properties);
  find("cudaMalloc", runtime.allocate);
  find("cudaFree", runtime.free);
  find("cudaMallocHost", runtime.allocate_host);
  find("cudaFreeHost", runtime.free_host);
  find("cudaMemcpyAsync", runtime.copy);
  find("cudaStreamCreateWithFlags", runtime.create_stream);
  find("cudaStreamDestroy", runtime.destroy_stream);
  find("cudaStreamQuery", runtime.query_stream);
  find("cudaIpcGetMemHandle", runtime.get_handle);
  find("cudaIpcOpenMemHandle", runtime.open_handle);
  find("cudaIpcCloseMemHandle", runtime.close_handle);
  find("cudaGetLastError", runtime.last_error);
  find("cudaGetErrorString", runtime.error_text);
  if (missing.empty()) return runtime;
  return StatusOf(absl::StatusCode::kUnavailable, library, " cannot be used: it has no ", missing);
}

// Makes a GPU the thread's current device for its own lifetime.
class DeviceScope {
 public:
  DeviceScope(const Runtime& runtime, int device) : runtime_(runtime) {
    status_ = runtime.Check("cudaGetDevice", runtime.get_device(&former_));
    if (!status_.ok() || former_ == device) return;
    status_ = runtime.Check("cudaSetDevice", runtime.set_device(device));
    changed_ = status_.ok();
  }
  ~DeviceScope() {
    if (changed_) Forgive(runtime_.Check("cudaSetDevice", runtime_.set_device(former_)));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  const absl::Status& status() const { return status_; }

  static void Forgive(const absl::Status& status) {
    if (status.ok()) return;
    FRESHET_LOG(Warning) << "event=cuda_call_failed reason=" << LogQuoted(Message(status));
  }

 private:
  const Runtime& runtime_;
  int former_ = 0;
  bool changed_ = false;
  absl::Status status_;
};

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(const Runtime& runtime, const CudaMemoryOptions& options, std::string uuid)
      : runtime_(runtime), options_(options), uuid_(std::move(uuid)) {}

  ~CudaMemory() override {
    const MutexLock lock(mu_);
    const DeviceScope scope(runtime_, options_.device);
    if (!failed_.ok()) return;  // the GPU may still read the pinned memory
    for (const Slot& slot : slots_) {
      if (slot.host != nullptr)
        DeviceScope::Forgive(Check("cudaFreeHost", runtime_.free_host(slot.host)));
      if (slot.stream != nullptr) {
        DeviceScope::Forgive(Check("cudaStreamDestroy", runtime_.destroy_stream(slot.stream)));
      }
    }
  }

  int device() const override { return options_.device; }
  const std::string& uuid() const override { return uuid_; }

  absl::StatusOr<std::byte*> Allocate(size_t size) override {
    FRESHET_RETURN_IF_ERROR(failed());
    const DeviceScope scope(runtime_, options_.device);
    FRESHET_RETURN_IF_ERROR(scope.status());
    void* memory = nullptr;
    const size_t blocks = (size + kBlockBytes - 1) / kBlockBytes;
    const int error = runtime_.allocate(&memory, blocks * kBlockBytes);
    const absl::Status status = Check("cudaMalloc", error);
    if (error == kNoMemory) return ResourceExhausted("no ", size, " bytes of GPU memory");
    FRESHET_RETURN_IF_ERROR(status);
    return static_cast<std::byte*>(memory);
  }

  void Free(std::byte* memory) override {
    if (!failed().ok()) return;
    const DeviceScope scope(runtime_, options_.device);
    DeviceScope::Forgive(Check("cudaFree", runtime_.free(memory)));
  }

  absl::Status Write(std::byte* to, std::span<const std::byte> from, absl::Time deadline) override {
    const MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(failed_);
    const DeviceScope scope(runtime_, options_.device);
    FRESHET_RETURN_IF_ERROR(scope.status());
    for (Slot& slot : slots_) FRESHET_RETURN_IF_ERROR(Prepare(slot));
    absl::Status status;
    for (size_t done = 0, turn = 0; status.ok() && done < from.size(); turn ^= 1) {
      const Slot& slot = slots_[turn];
      const size_t size = std::min(options_.piece_bytes, from.size() - done);
      status = Await(slot);
      if (!status.ok()) break;
      if (SystemClock::Get().Now() >= deadline) {
        status = absl::DeadlineExceededError("CUDA: a copy to the GPU did not end in time");
        break;
      }
      std::memcpy(slot.host, from.data() + done, size);
      status = Check("cudaMemcpyAsync",
                     runtime_.copy(to + done, slot.host, size, kHostToDevice, slot.stream));
      done += size;
    }
    for (const Slot& slot : slots_) {
      const absl::Status ended = Await(slot);
      if (status.ok()) status = ended;
    }
    return status;
  }

  absl::StatusOr<std::string> Export(std::byte* memory) override {
    const DeviceScope scope(runtime_, options_.device);
    FRESHET_RETURN_IF_ERROR(scope.status());
    CudaIpcHandle handle;
    FRESHET_RETURN_IF_ERROR(Check("cudaIpcGetMemHandle", runtime_.get_handle(&handle, memory)));
    return std::string(handle.bytes.begin(), handle.bytes.end());
  }

  absl::StatusOr<const std::byte*> Open(const std::string& handle) override {
    if (handle.size() != kDeviceHandleBytes) {
      return InvalidArgument("a GPU memory handle has ", handle.size(), " bytes, not ",
                             kDeviceHandleBytes);
    }
    const DeviceScope scope(runtime_, options_.device);
    FRESHET_RETURN_IF_ERROR(scope.status());
    CudaIpcHandle opened;
    std::copy(handle.begin(), handle.end(), opened.bytes.begin());
    void* memory = nullptr;
    FRESHET_RETURN_IF_ERROR(
        Check("cudaIpcOpenMemHandle", runtime_.open_handle(&memory, opened, kLazyPeers)));
    return static_cast<const std::byte*>(memory);
  }

  void Close(const std::byte* opened) override {
    const DeviceScope scope(runtime_, options_.device);
    DeviceScope::Forgive(
        Check("cudaIpcCloseMemHandle", runtime_.close_handle(const_cast<std::byte*>(opened))));
  }

 private:
  // Pinned host memory of one piece, and the stream that copies from it.
  struct Slot {
    void* host = nullptr;
    Stream stream = nullptr;
  };

  absl::Status Check(const char* call, int error) const { return runtime_.Check(call, error); }

  absl::Status failed() ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    return failed_;
  }

  absl::Status Prepare(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (slot.host == nullptr) {
      FRESHET_RETURN_IF_ERROR(
          Check("cudaMallocHost", runtime_.allocate_host(&slot.host, options_.piece_bytes)));
    }
    if (slot.stream != nullptr) return absl::OkStatus();
    return Check("cudaStreamCreate", runtime_.create_stream(&slot.stream, kNonBlocking));
  }

  // Until the slot's copy is done.
  absl::Status Await(const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time deadline = SystemClock::Get().Now() + options_.patience;
    while (failed_.ok()) {
      const int state = runtime_.query_stream(slot.stream);
      if (state == kSuccess) return absl::OkStatus();
      if (state != kNotReady) {
        failed_ = Check("cudaStreamQuery", state);
      } else if (SystemClock::Get().Now() >= deadline) {
        runtime_.last_error();
        failed_ = absl::DeadlineExceededError("CUDA: the GPU does not finish a copy");
      } else {
        std::this_thread::sleep_for(kPollPeriod);
      }
    }
    return failed_;
  }

  const Runtime runtime_;
  const CudaMemoryOptions options_;
  const std::string uuid_;
  Mutex mu_;
  std::array<Slot, 2> slots_ ABSL_GUARDED_BY(mu_);
  absl::Status failed_ ABSL_GUARDED_BY(mu_);  // of a copy that has not ended, or the GPU
};

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceMemory>> OpenCudaMemory(const CudaMemoryOptions& options) {
  FRESHET_ASSIGN_OR_RETURN(const Runtime runtime, LoadRuntime(options.library));
  alignas(8) std::array<char, kPropertyBytes> properties{};
  FRESHET_RETURN_IF_ERROR(runtime.Check("cudaGetDeviceProperties",
                                        runtime.get_properties(properties.data(), options.device)));
  return std::make_shared<CudaMemory>(
      runtime, options, std::string(properties.data() + kUuidOffset, kDeviceUuidBytes));
}

}  // namespace freshet
