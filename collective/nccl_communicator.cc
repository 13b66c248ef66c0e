#include "collective/nccl_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/chunks.h"

namespace freshet {
namespace {

constexpr absl::Duration kAbortPatience = absl::Minutes(1);
constexpr absl::Duration kPollPeriod = absl::Microseconds(200);
constexpr unsigned int kNonBlockingStream = 1;  // does not wait for the default stream
constexpr unsigned int kEventWithoutTime = 2;
constexpr size_t kAlignment = 512;  // of what an operation works on

absl::Time Now() { return SystemClock::Get().Now(); }

absl::Status NcclError(const NcclLibrary& library, const char* what, NcclResult result,
                       NcclComm comm) {
  const char* detail = library.last_error(comm);
  return StatusOf(absl::StatusCode::kUnavailable, "NCCL: ", what, ": ",
                  library.error_string(result), "; ", detail == nullptr ? "" : detail);
}

absl::Status CudaFailure(const NcclLibrary& library, const char* what, CudaError error) {
  library.last_cuda_error();
  return StatusOf(absl::StatusCode::kUnavailable, "CUDA: ", what, ": ",
                  library.cuda_error_string(error));
}

// Staging memory of a chunk on the GPU, and the stream that works on it.
class Slot {
 public:
  explicit Slot(std::shared_ptr<const NcclLibrary> library) : library_(std::move(library)) {}
  ~Slot() {
    library_->free(data_);
    if (event_ != nullptr) library_->destroy_event(event_);
    if (stream_ != nullptr) library_->destroy_stream(stream_);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  absl::Status Open() {
    CudaError error = library_->create_stream(&stream_, kNonBlockingStream);
    if (error == kCudaSuccess) error = library_->create_event(&event_, kEventWithoutTime);
    return error == kCudaSuccess ? absl::OkStatus()
                                 : CudaFailure(*library_, "cudaStreamCreate", error);
  }
  // What is put into the stream from now on waits for what the default stream has now, where the
  // caller's data in the GPU's memory is computed.
  absl::Status FollowDefaultStream() {
    CudaError error = library_->record_event(event_, /*stream=*/nullptr);
    if (error == kCudaSuccess) error = library_->await_event(stream_, event_, /*flags=*/0);
    return error == kCudaSuccess ? absl::OkStatus()
                                 : CudaFailure(*library_, "cudaStreamWaitEvent", error);
  }
  // RESOURCE_EXHAUSTED: the GPU's memory is full.
  absl::Status Reserve(size_t bytes) {
    if (bytes <= capacity_) return absl::OkStatus();
    library_->free(std::exchange(data_, nullptr));
    capacity_ = 0;
    if (library_->allocate(&data_, bytes) != kCudaSuccess) {
      data_ = nullptr;
      library_->last_cuda_error();
      return ResourceExhausted("no ", bytes, " bytes of GPU memory to stage collective operations");
    }
    capacity_ = bytes;
    return absl::OkStatus();
  }

  CudaStream stream() const { return stream_; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const std::shared_ptr<const NcclLibrary> library_;
  CudaStream stream_ = nullptr;
  CudaEvent event_ = nullptr;
  void* data_ = nullptr;
  size_t capacity_ = 0;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<const NcclLibrary> library, const NcclOptions& options)
      : library_(std::move(library)), options_(options), slots_{Slot(library_), Slot(library_)} {}

  // Communicators are always aborted: ncclCommDestroy may wait for the other ranks.
  ~NcclCommunicator() override {
    library_->set_device(options_.device);
    Abort("the communicator has ended");
    AwaitAborted();
  }

  absl::Status Connect() {
    if (const CudaError error = library_->set_device(options_.device); error != kCudaSuccess) {
      return CudaFailure(*library_, "cudaSetDevice", error);
    }
    for (Slot& slot : slots_) {
      FRESHET_RETURN_IF_ERROR(slot.Open());
      FRESHET_RETURN_IF_ERROR(
          slot.Reserve(std::min(options_.staged_bytes, options_.operation_bytes)));
    }
    const absl::Time deadline = Now() + options_.connect_timeout;
    {
      const MutexLock lock(mu_);
      NcclConfig config;
      const NcclResult result =
          library_->init_rank(&comm_, options_.size, options_.id, options_.rank, &config);
      if (result != kNcclSuccess && result != kNcclInProgress) {
        return FailLocked(NcclError(*library_, "ncclCommInitRankConfig", result, comm_));
      }
    }
    const std::stop_callback stopped(options_.stop, [this] { Abort("connecting was stopped"); });
    return AwaitReady(deadline);
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) override {
    if (root < 0 || root >= size()) return InvalidArgument("root ", root, " of ", size(), " ranks");
    const size_t from_here = rank() == root ? 1 : 0;
    const Buffers whole = {data.data(), data.size(), from_here,
                           data.data(), data.size(), 1 - from_here};
    return Run(data.size(), timeout, whole,
               [&](NcclComm comm, const Chunk& chunk, const std::byte*, std::byte* at) {
                 return library_->broadcast(at, at, chunk.size, kNcclBytes, root, comm,
                                            slots_[chunk.slot].stream());
               });
  }

  absl::Status AllReduce(std::span<float> data, absl::Duration timeout) override {
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    const Buffers whole = {bytes.data(), bytes.size(), 1, bytes.data(), bytes.size(), 1};
    return Run(bytes.size(), timeout, whole,
               [&](NcclComm comm, const Chunk& chunk, const std::byte*, std::byte* at) {
                 return library_->all_reduce(at, at, chunk.size / sizeof(float), kNcclFloat,
                                             kNcclSum, comm, slots_[chunk.slot].stream());
               });
  }

  absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                             absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(data.size(), own.size(), size()));
    const size_t part = own.size_bytes();
    const Buffers buffers = {std::as_bytes(data).data(),         part, Ranks(),
                             std::as_writable_bytes(own).data(), part, 1};
    return Run(part, timeout, buffers,
               [&](NcclComm comm, const Chunk& chunk, const std::byte* in, std::byte* out) {
                 return library_->reduce_scatter(in, out, chunk.size / sizeof(float), kNcclFloat,
                                                 kNcclSum, comm, slots_[chunk.slot].stream());
               });
  }

  absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                         absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(all.size(), own.size(), size()));
    return GatherParts(own, all.data(), /*to_all=*/true, timeout);
  }

  // NCCL has no such operation before version 2.28, so the GPUs exchange all parts.
  absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                      absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckGather(all.size(), own.size(), rank(), size()));
    return GatherParts(own, all.data(), /*to_all=*/false, timeout);
  }

  absl::Status Barrier(absl::Duration timeout) override {
    float one = 1;
    return AllReduce({&one, 1}, timeout);
  }

  void Abort(const std::string& reason) override {
    const MutexLock lock(mu_);
    FailLocked(absl::AbortedError(reason)).IgnoreError();
    changed_.NotifyAll();
  }

  absl::Status error() override {
    const MutexLock lock(mu_);
    return CheckLocked().status();
  }

 private:
  // The caller's memory of an operation: `in_parts` parts of `in_stride` bytes, of which every
  // chunk takes the same range, and likewise for the results.
  struct Buffers {
    const std::byte* in;
    size_t in_stride, in_parts;
    std::byte* out;
    size_t out_stride, out_parts;
    bool to_all = true;  // otherwise only rank 0 has memory for the results
  };

  size_t Ranks() const { return static_cast<size_t>(size()); }

  absl::Status GatherParts(std::span<const std::byte> own, std::byte* all, bool to_all,
                           absl::Duration timeout) {
    const Buffers buffers = {own.data(), own.size(), 1, all, own.size(), Ranks(), to_all};
    return Run(own.size(), timeout, buffers,
               [&](NcclComm comm, const Chunk& chunk, const std::byte* in, std::byte* out) {
                 return library_->all_gather(in, out, chunk.size, kNcclBytes, comm,
                                             slots_[chunk.slot].stream());
               });
  }

  // Whether CUDA knows the memory as a GPU's.
  bool IsOnGpu(const void* address) const {
    CudaPointer pointer;
    return address != nullptr && library_->describe_pointer(&pointer, address) == kCudaSuccess &&
           pointer.memory == kCudaDeviceMemory;
  }

  template <typename Enqueue>
  absl::Status Run(size_t bytes, absl::Duration timeout, const Buffers& data,
                   const Enqueue& enqueue) {
    absl::Status status = Operate(bytes, timeout, data, enqueue);
    if (!status.ok()) AwaitAborted();
    return status;
  }

  template <typename Enqueue>
  absl::Status Operate(size_t bytes, absl::Duration timeout, const Buffers& data,
                       const Enqueue& enqueue) {
    FRESHET_RETURN_IF_ERROR(error());
    if (const CudaError error = library_->set_device(options_.device); error != kCudaSuccess) {
      return Fail(CudaFailure(*library_, "cudaSetDevice", error));
    }
    const absl::Time deadline = Now() + timeout;
    const bool in_on_gpu = IsOnGpu(data.in);
    const bool out_on_gpu = IsOnGpu(data.out);
    const bool follows = in_on_gpu || out_on_gpu;
    const auto start = [&](const Chunk& chunk, const std::byte* in,
                           std::byte* out) -> absl::Status {
      {
        const MutexLock lock(mu_);
        FRESHET_RETURN_IF_ERROR(CheckLocked().status());
        const NcclResult result = enqueue(comm_, chunk, in, out);
        if (result != kNcclSuccess && result != kNcclInProgress) {
          return FailLocked(NcclError(*library_, "a collective operation", result, comm_));
        }
      }
      return AwaitReady(deadline);
    };
    if (in_on_gpu && out_on_gpu && data.to_all && bytes > 0) {
      FRESHET_RETURN_IF_ERROR(Follow(slots_[0]));
      FRESHET_RETURN_IF_ERROR(start({0, 0, bytes}, data.in, data.out));
      return AwaitStream(slots_[0], deadline);
    }
    const bool in_place = data.in == data.out;
    const size_t parts = in_place ? 1 : data.in_parts + data.out_parts;
    const size_t most =
        std::max(options_.operation_bytes / parts / kAlignment * kAlignment, kAlignment);
    // Before the first operation: allocating waits for those in progress.
    for (size_t slot = 0; slot < (bytes > most ? 2 : 1); ++slot) {
      const absl::Status reserved = slots_[slot ^ 1].Reserve(parts * std::min(bytes, most));
      if (!reserved.ok()) return Fail(reserved);
    }
    const auto stage = [&](const Chunk& chunk) -> absl::Status {
      Slot& slot = slots_[chunk.slot];
      if (follows) FRESHET_RETURN_IF_ERROR(Follow(slot));
      for (size_t part = 0; part < data.in_parts; ++part) {
        FRESHET_RETURN_IF_ERROR(Copy(slot.data() + part * chunk.size,
                                     data.in + part * data.in_stride + chunk.first, chunk.size,
                                     slot));
      }
      std::byte* const results = slot.data() + (in_place ? 0 : data.in_parts * chunk.size);
      return start(chunk, slot.data(), results);
    };
    const auto finish = [&](const Chunk& chunk) -> absl::Status {
      const Slot& slot = slots_[chunk.slot];
      FRESHET_RETURN_IF_ERROR(AwaitStream(slot, deadline));
      const std::byte* results = slot.data() + (in_place ? 0 : data.in_parts * chunk.size);
      const size_t taken = data.to_all || rank() == 0 ? data.out_parts : 0;
      for (size_t part = 0; part < taken; ++part) {
        FRESHET_RETURN_IF_ERROR(Copy(data.out + part * data.out_stride + chunk.first,
                                     results + part * chunk.size, chunk.size, slot));
      }
      return AwaitStream(slot, deadline);
    };
    return TwoAtATime(bytes, most, stage, finish);
  }

  absl::Status Follow(Slot& slot) {
    const absl::Status status = slot.FollowDefaultStream();
    return status.ok() ? status : Fail(status);
  }
  absl::Status Copy(void* to, const void* from, size_t size, const Slot& slot) {
    const CudaError error = library_->copy(to, from, size, kCudaByPointers, slot.stream());
    return error == kCudaSuccess ? absl::OkStatus()
                                 : Fail(CudaFailure(*library_, "cudaMemcpyAsync", error));
  }

  // NCCL takes the next call only when it is done with the one before.
  absl::Status AwaitReady(absl::Time deadline) {
    return Await(deadline, [] { return true; });
  }
  // Until what was put into the slot's stream is done.
  absl::Status AwaitStream(const Slot& slot, absl::Time deadline) {
    absl::Status failed;
    FRESHET_RETURN_IF_ERROR(Await(deadline, [&] {
      const CudaError state = library_->query_stream(slot.stream());
      if (state == kCudaNotReady) {
        library_->last_cuda_error();
      } else if (state != kCudaSuccess) {
        failed = CudaFailure(*library_, "cudaStreamQuery", state);
      }
      return state != kCudaNotReady;
    }));
    return failed.ok() ? failed : Fail(failed);
  }

  template <typename Done>
  absl::Status Await(absl::Time deadline, const Done& done) {
    const MutexLock lock(mu_);
    while (true) {
      FRESHET_ASSIGN_OR_RETURN(const bool ready, CheckLocked());
      if (ready && done()) return absl::OkStatus();
      if (Now() >= deadline) {
        return FailLocked(
            absl::DeadlineExceededError("collective: not all ranks took part before the deadline"));
      }
      changed_.WaitFor(mu_, kPollPeriod);
    }
  }

  // Whether NCCL can take the next call.
  absl::StatusOr<bool> CheckLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!error_.ok()) return FailLocked(error_);
    NcclResult state = kNcclSuccess;
    const NcclResult result = library_->get_async_error(comm_, &state);
    if (result != kNcclSuccess) state = result;
    if (state == kNcclSuccess || state == kNcclInProgress) return state == kNcclSuccess;
    return FailLocked(NcclError(*library_, "the group has failed", state, comm_));
  }

  absl::Status Fail(const absl::Status& status) {
    const MutexLock lock(mu_);
    return FailLocked(status);
  }
  // Ends what NCCL does, on a thread of its own, because ncclCommAbort can block. The first error
  // stays.
  absl::Status FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (error_.ok()) error_ = status;
    if (comm_ == nullptr) return error_;
    aborted_ = std::make_shared<Notification>();
    const auto abort = [library = library_, device = options_.device, comm = comm_,
                        done = aborted_] {
      library->set_device(device);
      library->abort(comm);
      done->Notify();
    };
    comm_ = nullptr;
    try {
      std::thread(abort).detach();
    } catch (const std::system_error&) {  // cannot start a thread
      abort();
    }
    return error_;
  }
  // Waits until NCCL has released the caller's memory and the slots. Ends the process after
  // kAbortPatience.
  void AwaitAborted() ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<Notification> aborted;
    {
      const MutexLock lock(mu_);
      aborted = aborted_;
    }
    if (aborted == nullptr || aborted->WaitFor(kAbortPatience)) return;
    FRESHET_LOG(Error) << "event=nccl_abort_hangs seconds=" << absl::ToInt64Seconds(kAbortPatience);
    std::_Exit(kExitInternal);
  }

  const std::shared_ptr<const NcclLibrary> library_;
  const NcclOptions options_;
  Slot slots_[2];
  Mutex mu_;  // also held during calls of NCCL, which do not block
  CondVar changed_;
  NcclComm comm_ ABSL_GUARDED_BY(mu_) = nullptr;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Notification> aborted_ ABSL_GUARDED_BY(mu_);  // null: not aborted
};

}  // namespace

absl::StatusOr<NcclUniqueId> MakeNcclUniqueId(const NcclLibrary& library) {
  NcclUniqueId id;
  const NcclResult result = library.get_unique_id(&id);
  if (result == kNcclSuccess) return id;
  return Internal(Message(NcclError(library, "ncclGetUniqueId", result, nullptr)));
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(
    std::shared_ptr<const NcclLibrary> library, const NcclOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank ", options.rank, " of ", options.size, " ranks");
  }
  auto communicator = std::make_unique<NcclCommunicator>(std::move(library), options);
  FRESHET_RETURN_IF_ERROR(communicator->Connect());
  return communicator;
}

}  // namespace freshet
