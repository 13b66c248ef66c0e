#ifndef FRESHET_SERVICES_RUNTIME_CLIENT_STREAM_H_
#define FRESHET_SERVICES_RUNTIME_CLIENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/runtime/status.h"

namespace freshet::runtime {

// Client side of one bidirectional stream, for threads that may block. When `max_buffered` received
// messages are unread, it ends with RESOURCE_EXHAUSTED or, on request, lets the server wait. One
// thread may Read while another one writes. Thread-safe.
//
//   auto stream = ClientStream<WorkerStatus, Directive>::Start(
//       std::make_unique<grpc::ClientContext>(),
//       [&](auto* context, auto* reactor) { stub->async()->Heartbeat(context, reactor); });
template <typename Request, typename Response>
class ClientStream {
 public:
  using Reactor = grpc::ClientBidiReactor<Request, Response>;
  using Starter = std::function<void(grpc::ClientContext*, Reactor*)>;

  enum class OnFull {
    kEnd,   // with RESOURCE_EXHAUSTED
    kWait,  // the server waits for Read
  };

  // Starts the call. A deadline of the context applies to the whole stream.
  static std::unique_ptr<ClientStream> Start(std::unique_ptr<grpc::ClientContext> context,
                                             const Starter& starter, size_t max_buffered = 1024,
                                             OnFull on_full = OnFull::kEnd) {
    return std::unique_ptr<ClientStream>(
        new ClientStream(std::move(context), starter, max_buffered, on_full));
  }
  // Cancels the stream if it has not ended, and waits for its end.
  ~ClientStream();
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // Sends one message; blocks until the transport has taken it. DEADLINE_EXCEEDED: not within
  // `timeout`; the message may still be sent, and no other one is accepted before that. If the
  // stream has ended: its status, or OUT_OF_RANGE if that is OK.
  absl::Status Write(const Request& message, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the next message. DEADLINE_EXCEEDED: none within `timeout`, or Interrupt; the stream
  // continues. OUT_OF_RANGE: the server ended the stream with OK. Otherwise the stream's status.
  absl::StatusOr<Response> Read(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Half-closes the stream. Idempotent.
  void WritesDone() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end and returns the status; cancels the stream after `timeout`. Unread messages
  // are dropped.
  absl::Status Finish(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream with CANCELLED. Callable from any thread.
  void Cancel() { context_->TryCancel(); }
  // Ends the current blocking Read, or the next one.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    interrupted_ = true;
    cv_.NotifyAll();
  }
  // True once the call has ended.
  bool done() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return done_;
  }

 private:
  // gRPC's reactions, in a separate class so that they are not public here.
  class Reactions final : public Reactor {
   public:
    explicit Reactions(ClientStream& owner) : owner_(owner) {}
    void OnReadDone(bool ok) override { owner_.ReadDone(ok); }
    void OnWriteDone(bool ok) override { owner_.WriteDone(ok); }
    void OnDone(const grpc::Status& status) override { owner_.Done(status); }

   private:
    ClientStream& owner_;
  };

  ClientStream(std::unique_ptr<grpc::ClientContext> context, const Starter& starter,
               size_t max_buffered, OnFull on_full);
  void ReadDone(bool ok) ABSL_LOCKS_EXCLUDED(mu_);
  void WriteDone(bool ok) ABSL_LOCKS_EXCLUDED(mu_);
  void Done(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return status_.ok() ? absl::OutOfRangeError("the stream has ended") : status_;
  }
  // Waits until `ready` or the deadline; returns whether ready.
  template <typename Predicate>
  bool Await(absl::Time deadline, Predicate ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (!ready()) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      cv_.WaitFor(mu_, std::min(left, absl::Hours(1)));
    }
    return true;
  }

  const std::unique_ptr<grpc::ClientContext> context_;
  const size_t max_buffered_;
  const OnFull on_full_;
  Reactions reactions_;
  Response incoming_;
  Request outgoing_;
  mutable Mutex mu_;
  CondVar cv_;
  std::deque<Response> received_ ABSL_GUARDED_BY(mu_);
  bool full_ ABSL_GUARDED_BY(mu_) = false;   // a message was dropped
  bool waits_ ABSL_GUARDED_BY(mu_) = false;  // for a Read, before it receives the next message
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool write_ok_ ABSL_GUARDED_BY(mu_) = true;  // of the last write
  bool writes_done_ ABSL_GUARDED_BY(mu_) = false;
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

template <typename Request, typename Response>
ClientStream<Request, Response>::ClientStream(std::unique_ptr<grpc::ClientContext> context,
                                              const Starter& starter, size_t max_buffered,
                                              OnFull on_full)
    : context_(std::move(context)),
      max_buffered_(max_buffered),
      on_full_(on_full),
      reactions_(*this) {
  starter(context_.get(), &reactions_);
  // Held until reading ends: with kWait there may be no read in progress, and other threads may
  // start writes.
  reactions_.AddHold();
  reactions_.StartRead(&incoming_);
  reactions_.StartCall();
}

template <typename Request, typename Response>
ClientStream<Request, Response>::~ClientStream() {
  Finish(absl::ZeroDuration()).IgnoreError();
}

template <typename Request, typename Response>
absl::Status ClientStream<Request, Response>::Write(const Request& message,
                                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  if (!Await(deadline,
             [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !writing_ || reads_ended_; })) {
    return absl::DeadlineExceededError("the previous message has not been sent yet");
  }
  if (writes_done_ && !reads_ended_) {
    return absl::FailedPreconditionError("a message after WritesDone");
  }
  if (write_ok_ && !reads_ended_) {
    writing_ = true;
    outgoing_ = message;
    reactions_.StartWrite(&outgoing_);
    if (!Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !writing_; })) {
      return absl::DeadlineExceededError("the message has not been sent yet");
    }
    if (write_ok_) return absl::OkStatus();
  }
  // The stream is broken: report its status.
  if (!Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; })) {
    return absl::UnavailableError("the stream is broken");
  }
  return EndStatus();
}

template <typename Request, typename Response>
absl::StatusOr<Response> ClientStream<Request, Response>::Read(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  if (!Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return !received_.empty() || done_ || interrupted_;
      })) {
    return absl::DeadlineExceededError("no message yet");
  }
  if (received_.empty() && !done_) {
    interrupted_ = false;
    return absl::DeadlineExceededError("interrupted");
  }
  if (received_.empty()) return EndStatus();
  Response message = std::move(received_.front());
  received_.pop_front();
  if (std::exchange(waits_, false)) reactions_.StartRead(&incoming_);
  return message;
}

template <typename Request, typename Response>
void ClientStream<Request, Response>::WritesDone() {
  MutexLock lock(mu_);
  if (std::exchange(writes_done_, true)) return;
  // Otherwise WriteDone continues.
  if (!writing_ && !reads_ended_) reactions_.StartWritesDone();
}

template <typename Request, typename Response>
absl::Status ClientStream<Request, Response>::Finish(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  finishing_ = true;
  received_.clear();
  if (std::exchange(waits_, false)) reactions_.StartRead(&incoming_);
  const auto done = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; };
  if (!Await(deadline, done)) {
    context_->TryCancel();
    Await(absl::InfiniteFuture(), done);
  }
  return status_;
}

template <typename Request, typename Response>
void ClientStream<Request, Response>::ReadDone(bool ok) {
  MutexLock lock(mu_);
  if (ok) {
    if (!finishing_ && received_.size() < max_buffered_) {
      received_.push_back(std::move(incoming_));
    } else if (!finishing_ && !std::exchange(full_, true)) {
      context_->TryCancel();
    }
    incoming_ = Response();
    waits_ = on_full_ == OnFull::kWait && !finishing_ && received_.size() >= max_buffered_;
    if (!waits_) reactions_.StartRead(&incoming_);
  } else {
    // The server has ended the stream, or it broke: start nothing more from outside.
    reads_ended_ = true;
    reactions_.RemoveHold();
  }
  cv_.NotifyAll();
}

template <typename Request, typename Response>
void ClientStream<Request, Response>::WriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  write_ok_ = ok;
  if (writes_done_ && !reads_ended_) reactions_.StartWritesDone();
  cv_.NotifyAll();
}

template <typename Request, typename Response>
void ClientStream<Request, Response>::Done(const grpc::Status& status) {
  MutexLock lock(mu_);
  done_ = true;
  status_ = full_ ? absl::ResourceExhaustedError("too many messages were not read")
                  : GrpcToStatus(status);
  cv_.NotifyAll();
}

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CLIENT_STREAM_H_
