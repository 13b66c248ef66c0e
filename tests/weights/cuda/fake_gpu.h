#ifndef FRESHET_TESTS_WEIGHTS_CUDA_FAKE_GPU_H_
#define FRESHET_TESTS_WEIGHTS_CUDA_FAKE_GPU_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// A GPU whose memory is the host's. Counts what must not happen: memory that is freed while it is
// open. Thread-safe.
class FakeGpu {
 public:
  enum class Fault { kNone, kNoExport, kNoOpen, kNoWrite };

  explicit FakeGpu(char letter = 'a', size_t capacity = size_t{1} << 30)
      : uuid_(kDeviceUuidBytes, letter), capacity_(capacity) {}

  const std::string& uuid() const { return uuid_; }
  void Fail(Fault fault) {
    const MutexLock lock(mu_);
    fault_ = fault;
  }
  size_t allocations() const {
    const MutexLock lock(mu_);
    return allocations_.size();
  }
  int writes() const {
    const MutexLock lock(mu_);
    return writes_;
  }
  int open() const {
    const MutexLock lock(mu_);
    int open = 0;
    for (const auto& [handle, allocation] : allocations_) open += allocation.open;
    return open;
  }
  int freed_while_open() const {
    const MutexLock lock(mu_);
    return freed_while_open_;
  }

 private:
  friend class FakeDeviceMemory;
  struct Allocation {
    std::unique_ptr<std::vector<std::byte>> bytes;
    int open = 0;
  };
  Allocation* Find(const std::byte* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (auto& [handle, allocation] : allocations_) {
      if (allocation.bytes->data() == memory) return &allocation;
    }
    return nullptr;
  }

  const std::string uuid_;
  const size_t capacity_;
  mutable Mutex mu_;
  std::map<std::string, Allocation> allocations_ ABSL_GUARDED_BY(mu_);  // by handle
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  int made_ ABSL_GUARDED_BY(mu_) = 0;
  int writes_ ABSL_GUARDED_BY(mu_) = 0;
  int freed_while_open_ ABSL_GUARDED_BY(mu_) = 0;
};

// The memory of a FakeGpu as one process sees it.
class FakeDeviceMemory final : public DeviceMemory {
 public:
  explicit FakeDeviceMemory(std::shared_ptr<FakeGpu> gpu) : gpu_(std::move(gpu)) {}

  int device() const override { return 0; }
  const std::string& uuid() const override { return gpu_->uuid(); }

  absl::StatusOr<std::byte*> Allocate(size_t size) override {
    const MutexLock lock(gpu_->mu_);
    size_t used = size;
    for (const auto& [handle, allocation] : gpu_->allocations_) used += allocation.bytes->size();
    if (used > gpu_->capacity_) return ResourceExhausted("the fake GPU is full");
    std::string handle = StrCat("handle ", gpu_->made_++);
    handle.resize(kDeviceHandleBytes);
    FakeGpu::Allocation& made = gpu_->allocations_[handle];
    made.bytes = std::make_unique<std::vector<std::byte>>(size);
    return made.bytes->data();
  }
  void Free(std::byte* memory) override {
    const MutexLock lock(gpu_->mu_);
    const FakeGpu::Allocation* const freed = gpu_->Find(memory);
    if (freed == nullptr) return;
    if (freed->open > 0) ++gpu_->freed_while_open_;
    std::erase_if(gpu_->allocations_,
                  [&](const auto& entry) { return entry.second.bytes->data() == memory; });
  }
  absl::Status Write(std::byte* to, std::span<const std::byte> from,
                     absl::Time /*deadline*/) override {
    const MutexLock lock(gpu_->mu_);
    ++gpu_->writes_;
    if (gpu_->fault_ == FakeGpu::Fault::kNoWrite) return absl::UnavailableError("write fails");
    std::copy(from.begin(), from.end(), to);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Export(std::byte* memory) override {
    const MutexLock lock(gpu_->mu_);
    if (gpu_->fault_ == FakeGpu::Fault::kNoExport) return absl::UnavailableError("export fails");
    for (const auto& [handle, allocation] : gpu_->allocations_) {
      if (allocation.bytes->data() == memory) return handle;
    }
    return absl::UnavailableError("no such memory");
  }
  absl::StatusOr<const std::byte*> Open(const std::string& handle) override {
    if (handle.size() != kDeviceHandleBytes) return InvalidArgument("the handle's size");
    const MutexLock lock(gpu_->mu_);
    if (gpu_->fault_ == FakeGpu::Fault::kNoOpen) return absl::UnavailableError("open fails");
    const auto found = gpu_->allocations_.find(handle);
    if (found == gpu_->allocations_.end()) return absl::UnavailableError("no such handle");
    ++found->second.open;
    return found->second.bytes->data();
  }
  void Close(const std::byte* opened) override {
    const MutexLock lock(gpu_->mu_);
    FakeGpu::Allocation* const found = gpu_->Find(opened);
    if (found != nullptr) --found->open;
  }

 private:
  const std::shared_ptr<FakeGpu> gpu_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_CUDA_FAKE_GPU_H_
