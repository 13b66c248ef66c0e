#ifndef FRESHET_CONTROLLER_API_STREAM_POOL_H_
#define FRESHET_CONTROLLER_API_STREAM_POOL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/stream_sink.h"
#include "services/runtime/executor.h"
#include "services/runtime/status.h"

namespace freshet {

// Runs server-streaming calls on its own threads, one thread per call, up to `max_streams`.
// Thread-safe.
class StreamPool {
 public:
  explicit StreamPool(int max_streams) : max_streams_(max_streams), executor_(max_streams, 64) {}

  // Handles a call: `produce` writes to the sink and returns the call's status. RESOURCE_EXHAUSTED
  // if too many streams are open. Return the reactor from a CallbackService method.
  template <typename Response>
  grpc::ServerWriteReactor<Response>* Run(
      std::function<absl::Status(StreamSink<Response>&)> produce);

  // No stream may be running; the server must be shut down first.
  void Stop() { executor_.Stop(); }
  int open() const { return open_.load(); }

 private:
  const int max_streams_;
  std::atomic<int> open_{0};
  runtime::Executor executor_;
};

namespace stream_pool_internal {

template <typename Response>
class Reactor final : public grpc::ServerWriteReactor<Response>, public StreamSink<Response> {
 public:
  bool Write(const Response& message) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (ended_) return false;
    outgoing_ = message;
    writing_ = true;
    grpc::ServerWriteReactor<Response>::StartWrite(&outgoing_);
    while (writing_) taken_.WaitFor(mu_, absl::Seconds(1));
    return !ended_;
  }
  bool ended() const override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return ended_;
  }

 private:
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    writing_ = false;
    if (!ok) ended_ = true;
    taken_.NotifyAll();
  }
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ended_ = true;
  }
  void OnDone() override { delete this; }

  mutable Mutex mu_;
  CondVar taken_;
  Response outgoing_;  // used by the write in progress
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace stream_pool_internal

template <typename Response>
grpc::ServerWriteReactor<Response>* StreamPool::Run(
    std::function<absl::Status(StreamSink<Response>&)> produce) {
  auto* reactor = new stream_pool_internal::Reactor<Response>();
  const auto refuse = [&] {
    reactor->Finish(runtime::StatusToGrpc(
        Explained(ResourceExhausted("too many streams are open; try again later"), "")));
    return reactor;
  };
  if (open_.fetch_add(1) >= max_streams_) {
    open_.fetch_sub(1);
    return refuse();
  }
  const bool queued = executor_.TrySubmit([this, reactor, produce = std::move(produce)] {
    absl::Status status;
    try {
      status = produce(*reactor);
    } catch (const std::exception& error) {
      status = Internal("an unexpected error: ", error.what());
    }
    open_.fetch_sub(1);
    reactor->Finish(runtime::StatusToGrpc(status));
  });
  if (queued) return reactor;
  open_.fetch_sub(1);
  return refuse();
}

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_STREAM_POOL_H_
