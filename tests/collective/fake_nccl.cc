// A shared library with the functions of NCCL and of the CUDA runtime that NcclCommunicator uses:
// GPU memory is host memory, a stream is a thread, ranks are communicators of this process. Copies
// happen at once, so one that comes before its operation has ended is seen in the result. If the
// counts of an operation differ between ranks, where NCCL would hang, it fails on all ranks.
//
// Faults, set by FakeNcclFault, hit one operation (from 0) of one rank.
#include "tests/collective/fake_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/nccl_library.h"

namespace freshet {
namespace {

constexpr NcclResult kSystemError = static_cast<NcclResult>(2);
constexpr CudaError kMemoryError = static_cast<CudaError>(2);
constexpr CudaError kInvalidValue = static_cast<CudaError>(1);
constexpr int kLatePolls = 50;

struct Call {
  std::vector<const float*> from;  // by rank
  std::vector<void*> to;
  size_t count = 0;  // of the first rank
  int arrived = 0;
  bool done = false;
  bool mismatched = false;
};

struct Group {
  std::vector<NcclComm> members;  // by rank; null: not there yet, or gone
  int joined = 0;
  bool broken = false;  // a member is gone
  std::map<int, Call> calls;
};

// What an operation does, with the numbers of all ranks.
using Compute = std::function<void(Call&)>;

std::mutex mu;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Group>> groups;
int next_id = 0;
int live_objects = 0;
std::map<int, int> unfinished;            // operations by device
std::map<const char*, size_t> allocated;  // of cudaMalloc: address and size
bool callers_memory_is_on_gpu = false;
bool aborts_hang = false;
thread_local int current_device = 0;
thread_local CudaError pending = kCudaSuccess;
struct {
  FakeFault fault = FakeFault::kNone;
  int rank = 0;
  int operation = 0;
} fault;

bool IsAllocated(const void* address) {
  const char* const at = static_cast<const char*>(address);
  const auto after = allocated.upper_bound(at);
  if (after == allocated.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return at < begin + size;
}
// Whether work on it must follow the default stream.
bool IsCallersOnGpu(const void* address) {
  return callers_memory_is_on_gpu && address != nullptr && !IsAllocated(address);
}

bool Hits(FakeFault kind, int rank, int operation) {
  return fault.fault == kind && fault.rank == rank && fault.operation == operation;
}

}  // namespace

struct NcclCommObject {
  std::shared_ptr<Group> group;
  int rank = 0;
  int size = 1;
  int operations = 0;
  bool hangs = false;  // never connects
  int late = 0;        // polls until it takes the next call
  NcclResult error = kNcclSuccess;
};

struct CudaEventObject {
  bool of_default_stream = false;
};

struct CudaStreamObject {
  std::deque<std::function<void()>> work;
  int device = 0;
  bool follows = false;  // the default stream, in what comes next
  bool busy = false;
  bool ending = false;
  std::thread thread;

  void Run() {
    std::unique_lock lock(mu);
    while (true) {
      changed.wait(lock, [&] { return ending || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      busy = true;
      lock.unlock();
      next();
      lock.lock();
      busy = false;
      --unfinished[device];
      changed.notify_all();
    }
  }
};

namespace {

// The state of a communicator that has been destroyed is not looked at.
bool Gone(const std::shared_ptr<Group>& group, int rank) {
  return group->members[static_cast<size_t>(rank)] == nullptr;
}

NcclResult Enqueue(const void* from, void* to, size_t count, NcclComm comm, CudaStream stream,
                   const Compute& compute) {
  const std::lock_guard lock(mu);
  const int operation = comm->operations++;
  if (Hits(FakeFault::kRefuse, comm->rank, operation)) return kNcclInvalidUsage;
  const bool follows = std::exchange(stream->follows, false);
  if (!follows && (IsCallersOnGpu(from) || IsCallersOnGpu(to))) return kNcclInvalidUsage;
  if (Hits(FakeFault::kLate, comm->rank, operation)) comm->late = kLatePolls;
  const bool fails = Hits(FakeFault::kFail, comm->rank, operation);
  const bool hangs = Hits(FakeFault::kHang, comm->rank, operation);
  ++unfinished[stream->device];
  stream->work.push_back([=, group = comm->group, rank = comm->rank] {
    std::unique_lock wait(mu);
    if (!Gone(group, rank) && fails) comm->error = kSystemError;
    if (fails || hangs) {
      // Ends by ncclCommAbort.
      changed.wait(wait, [&] { return Gone(group, rank); });
      return;
    }
    Call& call = group->calls[operation];
    call.from.resize(group->members.size());
    call.to.resize(group->members.size());
    if (call.arrived == 0) call.count = count;
    if (call.count != count) call.mismatched = true;
    call.from[static_cast<size_t>(rank)] = static_cast<const float*>(from);
    call.to[static_cast<size_t>(rank)] = to;
    if (++call.arrived == static_cast<int>(group->members.size()) && !call.mismatched) {
      compute(call);
      call.done = true;
    }
    changed.notify_all();
    changed.wait(
        wait, [&] { return call.done || call.mismatched || group->broken || Gone(group, rank); });
    if (call.done || Gone(group, rank)) return;
    comm->error = call.mismatched ? kNcclInvalidUsage : kNcclRemoteError;
    changed.wait(wait, [&] { return Gone(group, rank); });
  });
  changed.notify_all();
  return comm->late > 0 ? kNcclInProgress : kNcclSuccess;
}

void Leave(NcclComm comm) {
  comm->group->members[static_cast<size_t>(comm->rank)] = nullptr;
  comm->group->broken = true;
  changed.notify_all();
}

}  // namespace
}  // namespace freshet

using namespace freshet;  // NOLINT: the functions below have C names

extern "C" {

void FakeNcclFault(FakeFault kind, int rank, int operation) {
  const std::lock_guard lock(mu);
  fault = {kind, rank, operation};
}
int FakeNcclLiveObjects() {
  const std::lock_guard lock(mu);
  return live_objects;
}
void FakeNcclMemoryIsOnGpu(bool on_gpu) {
  const std::lock_guard lock(mu);
  callers_memory_is_on_gpu = on_gpu;
}
void FakeNcclHangAborts(bool hang) {
  const std::lock_guard lock(mu);
  aborts_hang = hang;
  changed.notify_all();
}

NcclResult ncclGetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}
NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const std::lock_guard lock(mu);
  const std::string text = std::to_string(next_id++);
  std::copy(text.begin(), text.end(), id->bytes.begin());
  return kNcclSuccess;
}
NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  const std::lock_guard lock(mu);
  if (config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0) {
    return kNcclInvalidArgument;
  }
  if (Hits(FakeFault::kRefuseToConnect, rank, 0)) return kNcclInvalidUsage;
  std::shared_ptr<Group>& group = groups[std::string(id.bytes.begin(), id.bytes.end())];
  if (group == nullptr) {
    group = std::make_shared<Group>();
    group->members.resize(static_cast<size_t>(ranks));
  }
  *comm = new NcclCommObject;
  ++live_objects;
  (*comm)->group = group;
  (*comm)->rank = rank;
  (*comm)->size = ranks;
  (*comm)->hangs = Hits(FakeFault::kHangToConnect, rank, 0);
  group->members[static_cast<size_t>(rank)] = *comm;
  if (!(*comm)->hangs) ++group->joined;
  return kNcclInProgress;
}
NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  const std::lock_guard lock(mu);
  *error = comm->error;
  if (comm->error != kNcclSuccess) return kNcclSuccess;
  if (comm->hangs || comm->group->joined < comm->size) *error = kNcclInProgress;
  if (comm->late > 0) {
    --comm->late;
    *error = kNcclInProgress;
  }
  return kNcclSuccess;
}
NcclResult ncclCommAbort(NcclComm comm) {
  std::unique_lock lock(mu);
  changed.wait(lock, [] { return !aborts_hang; });
  Leave(comm);
  delete comm;
  --live_objects;
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "remote process exited" : "fake error";
}
const char* ncclGetLastError(NcclComm) { return "fake detail"; }

NcclResult ncclBroadcast(const void* from, void* to, size_t count, NcclType, int root,
                         NcclComm comm, CudaStream stream) {
  return Enqueue(from, to, count, comm, stream, [=](Call& call) {
    for (void* other : call.to) {
      std::memmove(other, call.from[static_cast<size_t>(root)], count);
    }
  });
}
NcclResult ncclAllReduce(const void* from, void* to, size_t count, NcclType, NcclOperation,
                         NcclComm comm, CudaStream stream) {
  return Enqueue(from, to, count, comm, stream, [=](Call& call) {
    std::vector<float> sum(count);
    for (const float* part : call.from) {
      for (size_t i = 0; i < count; ++i) sum[i] += part[i];
    }
    for (void* other : call.to) std::memcpy(other, sum.data(), count * sizeof(float));
  });
}
NcclResult ncclReduceScatter(const void* from, void* to, size_t received, NcclType, NcclOperation,
                             NcclComm comm, CudaStream stream) {
  return Enqueue(from, to, received, comm, stream, [=](Call& call) {
    for (size_t rank = 0; rank < call.to.size(); ++rank) {
      std::vector<float> sum(received);
      for (const float* part : call.from) {
        for (size_t i = 0; i < received; ++i) sum[i] += part[rank * received + i];
      }
      std::memcpy(call.to[rank], sum.data(), received * sizeof(float));
    }
  });
}
NcclResult ncclAllGather(const void* from, void* to, size_t sent, NcclType, NcclComm comm,
                         CudaStream stream) {
  return Enqueue(from, to, sent, comm, stream, [=](Call& call) {
    for (void* other : call.to) {
      for (size_t rank = 0; rank < call.from.size(); ++rank) {
        std::memcpy(static_cast<char*>(other) + rank * sent, call.from[rank], sent);
      }
    }
  });
}

CudaError cudaSetDevice(int device) {
  current_device = device;
  return kCudaSuccess;
}
CudaError cudaMalloc(void** pointer, size_t size) {
  const std::lock_guard lock(mu);
  if (fault.fault == FakeFault::kNoMemory) return pending = kMemoryError;
  ++live_objects;
  *pointer = ::operator new(size);
  allocated[static_cast<const char*>(*pointer)] = size;
  return kCudaSuccess;
}
CudaError cudaFree(void* pointer) {
  std::unique_lock lock(mu);
  // Like CUDA's, waits for the device.
  changed.wait(lock, [] { return unfinished[current_device] == 0; });
  if (pointer != nullptr) --live_objects;
  allocated.erase(static_cast<const char*>(pointer));
  ::operator delete(pointer);
  return kCudaSuccess;
}
CudaError cudaStreamCreateWithFlags(CudaStream* stream, unsigned int) {
  const std::lock_guard lock(mu);
  ++live_objects;
  *stream = new CudaStreamObject;
  (*stream)->device = current_device;
  (*stream)->thread = std::thread([stream = *stream] { stream->Run(); });
  return kCudaSuccess;
}
CudaError cudaStreamDestroy(CudaStream stream) {
  {
    const std::lock_guard lock(mu);
    stream->ending = true;
    changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  const std::lock_guard lock(mu);
  --live_objects;
  return kCudaSuccess;
}
CudaError cudaStreamQuery(CudaStream stream) {
  const std::lock_guard lock(mu);
  if (!stream->busy && stream->work.empty()) return kCudaSuccess;
  return pending = kCudaNotReady;
}
CudaError cudaMemcpyAsync(void* to, const void* from, size_t size, CudaCopy, CudaStream stream) {
  {
    const std::lock_guard lock(mu);
    if (IsCallersOnGpu(from) && !stream->follows) return kInvalidValue;
  }
  std::memcpy(to, from, size);
  return kCudaSuccess;
}
CudaError cudaPointerGetAttributes(CudaPointer* pointer, const void* address) {
  const std::lock_guard lock(mu);
  const bool on_gpu = IsAllocated(address) || IsCallersOnGpu(address);
  *pointer = CudaPointer();
  if (on_gpu) pointer->memory = kCudaDeviceMemory;
  return kCudaSuccess;
}
CudaError cudaEventCreateWithFlags(CudaEvent* event, unsigned int) {
  const std::lock_guard lock(mu);
  ++live_objects;
  *event = new CudaEventObject;
  return kCudaSuccess;
}
CudaError cudaEventDestroy(CudaEvent event) {
  const std::lock_guard lock(mu);
  --live_objects;
  delete event;
  return kCudaSuccess;
}
CudaError cudaEventRecord(CudaEvent event, CudaStream stream) {
  const std::lock_guard lock(mu);
  event->of_default_stream = stream == nullptr;
  return kCudaSuccess;
}
CudaError cudaStreamWaitEvent(CudaStream stream, CudaEvent event, unsigned int) {
  const std::lock_guard lock(mu);
  stream->follows = event->of_default_stream;
  return kCudaSuccess;
}
CudaError cudaGetLastError() { return std::exchange(pending, kCudaSuccess); }
const char* cudaGetErrorString(CudaError) { return "fake error"; }

}  // extern "C"
