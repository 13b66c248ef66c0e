#ifndef FRESHET_WEIGHTS_CUDA_DEVICE_MEMORY_H_
#define FRESHET_WEIGHTS_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

inline constexpr size_t kDeviceHandleBytes = 64;  // of cudaIpcMemHandle_t
inline constexpr size_t kDeviceUuidBytes = 16;

// Port: memory of one GPU, which a process can let other processes of the host open (CUDA IPC).
// Unless said otherwise, errors are UNAVAILABLE and name the call that failed. Thread-safe.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  virtual int device() const = 0;  // CUDA's number of the GPU in this process
  // Of the GPU: kDeviceUuidBytes bytes, the same in all processes.
  virtual const std::string& uuid() const = 0;

  // `size` must not be 0. RESOURCE_EXHAUSTED: the GPU's memory is full.
  virtual absl::StatusOr<std::byte*> Allocate(size_t size) = 0;
  // No process may have it open: CUDA does not define what happens then.
  virtual void Free(std::byte* memory) = 0;

  // Copies `from`, in the memory of the host, to memory of Allocate and waits until the GPU has it.
  // DEADLINE_EXCEEDED: `deadline` passed; the contents of `to` are undefined. Also if the GPU does
  // not finish a copy and may still write: then every later Write and Allocate fails with this
  // error, and `to` is never freed.
  virtual absl::Status Write(std::byte* to, std::span<const std::byte> from,
                             absl::Time deadline) = 0;

  // A handle of kDeviceHandleBytes by which other processes open memory of Allocate.
  virtual absl::StatusOr<std::string> Export(std::byte* memory) = 0;

  // The address in this process of another process's memory. Call Close once for it.
  virtual absl::StatusOr<const std::byte*> Open(const std::string& handle) = 0;
  virtual void Close(const std::byte* opened) = 0;
};

// The memory of the GPU that a job's `device` means: "auto", "cuda" or "cuda:N".
// FAILED_PRECONDITION: it means the CPU, or the GPU cannot be used. UNAVAILABLE: a library or
// function is missing.
using OpenDeviceMemory =
    std::function<absl::StatusOr<std::shared_ptr<DeviceMemory>>(const std::string& device)>;

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_CUDA_DEVICE_MEMORY_H_
