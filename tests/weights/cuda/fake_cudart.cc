// A shared library with the functions of the CUDA runtime that CudaMemory uses, for two GPUs whose
// memory is the host's. A copy is made when its stream is asked for the second time, so whoever
// does not wait for it sees the bytes before it.
#include "tests/weights/cuda/fake_cudart.h"

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weights/cuda/cuda_memory.h"

namespace freshet {
namespace {

struct FakeStream {
  std::deque<std::function<void()>> copies;
  bool asked = false;
};

constexpr int kNumGpus = 2;
constexpr int kInvalidValue = 1;
constexpr int kMemoryFull = 2;
constexpr int kNoDriver = 35;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidHandle = 400;
constexpr int kNotDone = 600;
constexpr int kIllegalAddress = 700;
constexpr char kMagic[] = "fake";

std::mutex gpu_mu;
FakeCudaFault current_fault = FakeCudaFault::kNone;
std::map<void*, std::unique_ptr<std::vector<char>>> allocations;  // of GPUs and pinned
size_t gpu_bytes = 0;
std::map<void*, std::unique_ptr<FakeStream>> streams;
int opened = 0;
thread_local int thread_device = 0;
thread_local int pending = 0;

int Result(int error) {
  if (error != 0 && error != kNotDone) pending = error;
  return error;
}

int AllocateBytes(void** memory, size_t size) {
  auto bytes = std::make_unique<std::vector<char>>(size);
  *memory = bytes->data();
  allocations[*memory] = std::move(bytes);
  return 0;
}

}  // namespace
}  // namespace freshet

using namespace freshet;  // NOLINT: the functions below have C names

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

void FakeCudaSetFault(FakeCudaFault kind) {
  const std::lock_guard lock(gpu_mu);
  current_fault = kind;
}
int FakeCudaLiveObjects() {
  const std::lock_guard lock(gpu_mu);
  return static_cast<int>(allocations.size() + streams.size()) + opened;
}
int FakeCudaPendingError() { return pending; }
int FakeCudaDevice() { return thread_device; }

int cudaGetDevice(int* device) {
  *device = thread_device;
  return 0;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= kNumGpus) return Result(kInvalidDevice);
  thread_device = device;
  return 0;
}
int cudaGetDeviceProperties(void* properties, int device) {
  const std::lock_guard lock(gpu_mu);
  if (current_fault == FakeCudaFault::kNoGpu) return Result(kNoDriver);
  if (device < 0 || device >= kNumGpus) return Result(kInvalidDevice);
  char* const all = static_cast<char*>(properties);
  std::memset(all, 'n', 256);
  std::memset(all + 256, 'A' + device, 16);
  return 0;
}
int cudaMalloc(void** memory, size_t size) {
  const std::lock_guard lock(gpu_mu);
  if (gpu_bytes + size > kFakeCudaCapacity) return Result(kMemoryFull);
  gpu_bytes += size;
  return AllocateBytes(memory, size);
}
int cudaFree(void* memory) {
  const std::lock_guard lock(gpu_mu);
  const auto found = allocations.find(memory);
  if (found == allocations.end()) return Result(kInvalidValue);
  gpu_bytes -= found->second->size();
  allocations.erase(found);
  return 0;
}
int cudaMallocHost(void** memory, size_t size) {
  const std::lock_guard lock(gpu_mu);
  return AllocateBytes(memory, size);
}
int cudaFreeHost(void* memory) {
  const std::lock_guard lock(gpu_mu);
  return Result(allocations.erase(memory) == 1 ? 0 : kInvalidValue);
}
int cudaMemcpyAsync(void* to, const void* from, size_t size, int /*kind*/, void* stream) {
  const std::lock_guard lock(gpu_mu);
  FakeStream& fake = *streams.at(stream);
  fake.copies.push_back([=] { std::memcpy(to, from, size); });
  fake.asked = false;
  return 0;
}
int cudaStreamCreateWithFlags(void** stream, unsigned /*flags*/) {
  const std::lock_guard lock(gpu_mu);
  auto made = std::make_unique<FakeStream>();
  *stream = made.get();
  streams[*stream] = std::move(made);
  return 0;
}
int cudaStreamDestroy(void* stream) {
  const std::lock_guard lock(gpu_mu);
  streams.erase(stream);
  return 0;
}
int cudaStreamQuery(void* stream) {
  const std::lock_guard lock(gpu_mu);
  FakeStream& fake = *streams.at(stream);
  if (fake.copies.empty()) return 0;
  if (current_fault == FakeCudaFault::kCopy) return Result(kIllegalAddress);
  if (current_fault == FakeCudaFault::kHang || !std::exchange(fake.asked, true)) {
    return Result(kNotDone);
  }
  for (const auto& copy : fake.copies) copy();
  fake.copies.clear();
  return 0;
}
int cudaIpcGetMemHandle(CudaIpcHandle* handle, void* memory) {
  const std::lock_guard lock(gpu_mu);
  if (current_fault == FakeCudaFault::kNoExport) return Result(kInvalidValue);
  std::memcpy(handle->bytes.data(), kMagic, sizeof(kMagic));
  std::memcpy(handle->bytes.data() + sizeof(kMagic), &memory, sizeof(memory));
  return 0;
}
int cudaIpcOpenMemHandle(void** memory, CudaIpcHandle handle, unsigned flags) {
  const std::lock_guard lock(gpu_mu);
  if (flags != 1) return Result(kInvalidValue);
  if (current_fault == FakeCudaFault::kNoOpen) return Result(kInvalidHandle);
  if (std::memcmp(handle.bytes.data(), kMagic, sizeof(kMagic)) != 0) return Result(kInvalidHandle);
  std::memcpy(memory, handle.bytes.data() + sizeof(kMagic), sizeof(*memory));
  if (!allocations.contains(*memory)) return Result(kInvalidHandle);
  ++opened;
  return 0;
}
int cudaIpcCloseMemHandle(void* /*memory*/) {
  const std::lock_guard lock(gpu_mu);
  --opened;
  return 0;
}
int cudaGetLastError() { return std::exchange(pending, 0); }
const char* cudaGetErrorString(int error) {
  return error == kNoDriver ? "no driver" : error == kInvalidHandle ? "invalid handle" : "failed";
}
}
// NOLINTEND(readability-identifier-naming)
