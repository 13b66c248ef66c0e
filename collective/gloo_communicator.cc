#include "collective/gloo_communicator.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/chunks.h"

namespace freshet {
namespace {

using c10d::ProcessGroupGloo;

constexpr size_t kChunkBytes = size_t{4} << 20;
// Gloo's own deadline is this much later than ours, so that operations which were given up end.
constexpr absl::Duration kGrace = absl::Seconds(1);

std::chrono::milliseconds Milliseconds(absl::Duration time) {
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(time) + 1);
}

// Held while an operation starts: c10d's flight recorder, one for all groups of the process, adds
// to a map without a lock.
Mutex start_mutex;

// Gloo tells its errors apart by their texts only.
absl::Status GlooError(const std::string& text) {
  const bool late = text.find("imed out") != std::string::npos;
  return StatusOf(late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable,
                  "collective: ", text.substr(0, 300));
}

// Wakes the caller when an operation has ended. Outlives the communicator, because operations that
// it gave up still end later.
struct Events {
  Mutex mu;
  CondVar changed;
  absl::Status error ABSL_GUARDED_BY(mu);
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<ProcessGroupGloo> group,
                   std::shared_ptr<const void> file_owner)
      : file_owner_(std::move(file_owner)), group_(std::move(group)) {}

  // The destructor of a group waits for its operations, which end at their deadlines.
  ~GlooCommunicator() override {
    if (error().ok()) return;
    // Not waited for: operations with a peer that hangs end only at their deadlines.
    std::thread([file_owner = file_owner_, group = std::move(group_)]() mutable {
      group = nullptr;
    }).detach();
  }

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) override {
    if (root < 0 || root >= size()) return InvalidArgument("root ", root, " of ", size(), " ranks");
    if (size() == 1) return error();
    return InChunks(
        data.size(), timeout,
        [&](const Chunk& chunk, at::Tensor& staging, absl::Duration left) {
          staging = Bytes(chunk.size);
          if (rank() == root) std::memcpy(Data(staging), data.data() + chunk.first, chunk.size);
          c10d::BroadcastOptions options;
          options.rootRank = root;
          options.timeout = Milliseconds(left);
          std::vector<at::Tensor> tensors = {staging};
          return group_->broadcast(tensors, options);
        },
        [&](const Chunk& chunk, const at::Tensor& staging) {
          if (rank() != root) std::memcpy(data.data() + chunk.first, Data(staging), chunk.size);
        });
  }

  absl::Status AllReduce(std::span<float> data, absl::Duration timeout) override {
    if (size() == 1) return error();
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    return InChunks(
        bytes.size(), timeout,
        [&](const Chunk& chunk, at::Tensor& staging, absl::Duration left) {
          staging = Floats(chunk.size);
          std::memcpy(Data(staging), bytes.data() + chunk.first, chunk.size);
          c10d::AllreduceOptions options;
          options.timeout = Milliseconds(left);
          std::vector<at::Tensor> tensors = {staging};
          return group_->allreduce(tensors, options);
        },
        [&](const Chunk& chunk, const at::Tensor& staging) {
          std::memcpy(bytes.data() + chunk.first, Data(staging), chunk.size);
        });
  }

  absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                             absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(data.size(), own.size(), size()));
    const auto ranks = static_cast<size_t>(size());
    const std::span<const std::byte> from = std::as_bytes(data);
    const std::span<std::byte> to = std::as_writable_bytes(own);
    if (ranks == 1) return Copy(from, to);
    return InChunks(
        to.size(), timeout,
        [&](const Chunk& chunk, at::Tensor& staging, absl::Duration left) {
          at::Tensor mine = Floats(ranks * chunk.size);
          for (size_t r = 0; r < ranks; ++r) {
            std::memcpy(Data(mine) + r * chunk.size, from.data() + r * to.size() + chunk.first,
                        chunk.size);
          }
          // c10d's reduce-scatter over Gloo is an all-reduce, which sends twice as much.
          staging = Floats(ranks * chunk.size);
          c10d::AllToAllOptions options;
          options.timeout = Milliseconds(left);
          std::vector<int64_t> equal;
          return group_->alltoall_base(staging, mine, equal, equal, options);
        },
        [&](const Chunk& chunk, const at::Tensor& staging) {
          const auto size = static_cast<int64_t>(chunk.size / sizeof(float));
          at::Tensor sum = staging.narrow(0, 0, size);
          for (int64_t r = 1; r < static_cast<int64_t>(ranks); ++r) {
            sum.add_(staging.narrow(0, r * size, size));
          }
          std::memcpy(to.data() + chunk.first, Data(sum), chunk.size);
        });
  }

  absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                         absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(all.size(), own.size(), size()));
    const auto ranks = static_cast<size_t>(size());
    if (ranks == 1) return Copy(own, all);
    return InChunks(
        own.size(), timeout,
        [&](const Chunk& chunk, at::Tensor& staging, absl::Duration left) {
          at::Tensor mine = Bytes(chunk.size);
          std::memcpy(Data(mine), own.data() + chunk.first, chunk.size);
          staging = Bytes(ranks * chunk.size);
          c10d::AllgatherOptions options;
          options.timeout = Milliseconds(left);
          return group_->_allgather_base(staging, mine, options);
        },
        [&](const Chunk& chunk, const at::Tensor& staging) {
          for (size_t r = 0; r < ranks; ++r) {
            std::memcpy(all.data() + r * own.size() + chunk.first, Data(staging) + r * chunk.size,
                        chunk.size);
          }
        });
  }

  absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                      absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckGather(all.size(), own.size(), rank(), size()));
    const auto ranks = static_cast<size_t>(size());
    if (ranks == 1) return Copy(own, all);
    return InChunks(
        own.size(), timeout,
        [&](const Chunk& chunk, at::Tensor& staging, absl::Duration left) {
          std::vector<at::Tensor> mine = {Bytes(chunk.size)};
          std::memcpy(Data(mine[0]), own.data() + chunk.first, chunk.size);
          std::vector<std::vector<at::Tensor>> outputs;
          if (rank() == 0) {
            staging = Bytes(ranks * chunk.size);
            outputs.push_back(staging.chunk(static_cast<int64_t>(ranks)));
          }
          c10d::GatherOptions options;
          options.timeout = Milliseconds(left);
          return group_->gather(outputs, mine, options);
        },
        [&](const Chunk& chunk, const at::Tensor& staging) {
          for (size_t r = 0; r < ranks && rank() == 0; ++r) {
            std::memcpy(all.data() + r * own.size() + chunk.first, Data(staging) + r * chunk.size,
                        chunk.size);
          }
        });
  }

  absl::Status Barrier(absl::Duration timeout) override {
    float one = 1;
    return AllReduce({&one, 1}, timeout);
  }

  void Abort(const std::string& reason) override {
    MutexLock lock(events_->mu);
    if (events_->error.ok()) events_->error = absl::AbortedError(reason);
    events_->changed.NotifyAll();
  }

  absl::Status error() override {
    MutexLock lock(events_->mu);
    return events_->error;
  }

 private:
  // A chunk's operation. Gloo works on `staging`, which it keeps alive, so that an operation that
  // is given up does not touch the caller's memory afterwards.
  struct Operation {
    at::Tensor staging;
    c10::intrusive_ptr<c10d::Work> work;
    c10::intrusive_ptr<c10::ivalue::Future> result;
  };

  static at::Tensor Bytes(size_t size) {
    return at::empty({static_cast<int64_t>(size)}, at::kByte);
  }
  static at::Tensor Floats(size_t bytes) {
    return at::empty({static_cast<int64_t>(bytes / sizeof(float))}, at::kFloat);
  }
  static std::byte* Data(const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.mutable_data_ptr());
  }

  // The operations of a single rank.
  absl::Status Copy(std::span<const std::byte> from, std::span<std::byte> to) {
    FRESHET_RETURN_IF_ERROR(error());
    std::ranges::copy(from, to.begin());
    return absl::OkStatus();
  }

  absl::Status InChunks(
      size_t bytes, absl::Duration timeout,
      const std::function<c10::intrusive_ptr<c10d::Work>(const Chunk&, at::Tensor& staging,
                                                         absl::Duration left)>& start,
      const std::function<void(const Chunk&, const at::Tensor& staging)>& finish) {
    const absl::Time deadline = SystemClock::Get().Now() + timeout;
    Operation operations[2];
    return TwoAtATime(
        bytes, kChunkBytes,
        [&](const Chunk& chunk) -> absl::Status {
          FRESHET_RETURN_IF_ERROR(error());
          Operation& next = operations[chunk.slot];
          try {
            const absl::Duration left = deadline - SystemClock::Get().Now() + kGrace;
            const MutexLock lock(start_mutex);
            next.work = start(chunk, next.staging, left);
          } catch (const std::exception& error) {
            return Fail(GlooError(error.what()));
          }
          next.result = Watch(next.work);
          return absl::OkStatus();
        },
        [&](const Chunk& chunk) -> absl::Status {
          const Operation& operation = operations[chunk.slot];
          FRESHET_RETURN_IF_ERROR(Await(*operation.result, deadline));
          finish(chunk, operation.staging);
          return absl::OkStatus();
        });
  }

  c10::intrusive_ptr<c10::ivalue::Future> Watch(const c10::intrusive_ptr<c10d::Work>& work) {
    c10::intrusive_ptr<c10::ivalue::Future> result = work->getFuture();
    result->addCallback([events = events_](c10::ivalue::Future&) {
      MutexLock lock(events->mu);
      events->changed.NotifyAll();
    });
    return result;
  }

  absl::Status Await(const c10::ivalue::Future& result, absl::Time deadline) {
    {
      MutexLock lock(events_->mu);
      while (!result.completed() && events_->error.ok()) {
        const absl::Duration left = deadline - SystemClock::Get().Now();
        if (left <= absl::ZeroDuration()) break;
        events_->changed.WaitFor(events_->mu, left);
      }
      if (!events_->error.ok()) return events_->error;
    }
    if (!result.completed()) {
      return Fail(
          absl::DeadlineExceededError("collective: not all ranks took part before the deadline"));
    }
    return result.hasError() ? Fail(GlooError(result.tryRetrieveErrorMessage())) : absl::OkStatus();
  }

  absl::Status Fail(absl::Status status) {
    MutexLock lock(events_->mu);
    if (events_->error.ok()) events_->error = std::move(status);
    return events_->error;
  }

  const std::shared_ptr<const void> file_owner_;
  c10::intrusive_ptr<ProcessGroupGloo> group_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(const GlooOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank ", options.rank, " of ", options.size, " ranks");
  }
  std::signal(SIGPIPE, SIG_IGN);
  try {
    auto store = c10::make_intrusive<c10d::FileStore>(options.rendezvous_file, options.size);
    store->setTimeout(Milliseconds(std::max(options.connect_timeout, absl::ZeroDuration())));
    auto gloo = ProcessGroupGloo::Options::create(Milliseconds(options.connect_timeout));
    gloo->devices.push_back(ProcessGroupGloo::createDeviceForHostname(options.host));
    return std::make_unique<GlooCommunicator>(
        c10::make_intrusive<ProcessGroupGloo>(std::move(store), options.rank, options.size,
                                              std::move(gloo)),
        options.file_owner);
  } catch (const std::exception& error) {
    return StatusOf(absl::StatusCode::kUnavailable, "collective: rank ", options.rank, " of ",
                    options.size, " cannot connect: ", std::string(error.what()).substr(0, 300));
  }
}

}  // namespace freshet
