#ifndef FRESHET_SERVICES_RUNTIME_BIDI_REACTOR_H_
#define FRESHET_SERVICES_RUNTIME_BIDI_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/runtime/status.h"

namespace freshet::runtime {

enum class SendResult { kQueued, kFull, kClosed };

// Server side of one bidirectional stream, for the callback API. Derive, override the On...
// methods, and return Open(std::make_shared<Mine>(...)) from the service method. Holders of the
// shared_ptr may call Send and Finish at any time, even after the stream has ended.
//
// The On... methods are called one at a time, without this class's lock held, and must not block.
// Messages are read one by one: the next read starts when OnMessage has returned kContinue, or
// after ResumeReading, which gives backpressure. Thread-safe.
template <typename Request, typename Response>
class BidiReactor : public grpc::ServerBidiReactor<Request, Response> {
 public:
  enum class Reading { kContinue, kPause };

  explicit BidiReactor(size_t max_queue) : max_queue_(max_queue) {}

  // Starts reading; the stream keeps itself alive until OnDone.
  static grpc::ServerBidiReactor<Request, Response>* Open(std::shared_ptr<BidiReactor> reactor) {
    BidiReactor* raw = reactor.get();
    raw->self_ = std::move(reactor);
    raw->OnOpen();
    raw->StartRead(&raw->incoming_);
    return raw;
  }

  // Queues a message. Waits up to `timeout` for room; leave it 0 in the On... methods, which must
  // not block. kFull: max_queue messages are queued; kClosed: the stream is ending or has ended.
  SendResult Send(Response message, absl::Duration timeout = absl::ZeroDuration())
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream after the queued messages. The first call wins.
  void Finish(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Resumes reading after kPause.
  void ResumeReading() ABSL_LOCKS_EXCLUDED(mu_);

 protected:
  // Called first.
  virtual void OnOpen() {}
  virtual Reading OnMessage(const Request& message) = 0;
  // The client has sent its last message, or the stream broke.
  virtual void OnClientDone() { Finish(absl::OkStatus()); }
  // The stream has ended, possibly by cancellation. Called exactly once, last.
  virtual void OnEnd() {}

 private:
  void OnReadDone(bool ok) final ABSL_LOCKS_EXCLUDED(mu_);
  void OnWriteDone(bool ok) final ABSL_LOCKS_EXCLUDED(mu_);
  void OnCancel() final ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone() final;
  // Starts the next write, or Finish if none is left.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the next read. Not after Finish, when gRPC may have destroyed the stream.
  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!finished_) grpc::ServerBidiReactor<Request, Response>::StartRead(&incoming_);
  }

  const size_t max_queue_;
  std::shared_ptr<BidiReactor> self_;
  Request incoming_;  // used by the read in progress
  Mutex mu_;
  CondVar room_;                                     // or the end
  std::deque<Response> queue_ ABSL_GUARDED_BY(mu_);  // front() is being written if writing_
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // cancelled, or a write failed
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
  bool resume_ ABSL_GUARDED_BY(mu_) = false;  // ResumeReading was called before OnMessage returned
  absl::Status final_status_ ABSL_GUARDED_BY(mu_);
};

template <typename Request, typename Response>
SendResult BidiReactor<Request, Response>::Send(Response message, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (!finishing_ && !broken_ && queue_.size() >= max_queue_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return SendResult::kFull;
    room_.WaitFor(mu_, left);
  }
  if (finishing_ || broken_) return SendResult::kClosed;
  queue_.push_back(std::move(message));
  Advance();
  return SendResult::kQueued;
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::Finish(const absl::Status& status) {
  MutexLock lock(mu_);
  if (finishing_) return;
  finishing_ = true;
  room_.NotifyAll();
  final_status_ = status;
  Advance();
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::ResumeReading() {
  MutexLock lock(mu_);
  if (!paused_) {
    resume_ = true;
    return;
  }
  paused_ = false;
  Read();
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::OnReadDone(bool ok) {
  if (!ok) {
    OnClientDone();
    return;
  }
  const Reading next = OnMessage(incoming_);
  MutexLock lock(mu_);
  const bool resumed = std::exchange(resume_, false);
  if (next == Reading::kPause && !resumed) {
    paused_ = true;
    return;
  }
  Read();
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  queue_.pop_front();
  room_.NotifyAll();
  if (!ok) broken_ = true;
  Advance();
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::OnCancel() {
  MutexLock lock(mu_);
  broken_ = true;
  room_.NotifyAll();
  if (!finishing_) {
    finishing_ = true;
    final_status_ = absl::CancelledError("the stream was cancelled");
  }
  Advance();
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::Advance() {
  if (writing_ || finished_) return;
  if (broken_) queue_.clear();
  if (!queue_.empty()) {
    writing_ = true;
    grpc::ServerBidiReactor<Request, Response>::StartWrite(&queue_.front());
    return;
  }
  if (finishing_) {
    finished_ = true;
    grpc::ServerBidiReactor<Request, Response>::Finish(StatusToGrpc(final_status_));
  }
}

template <typename Request, typename Response>
void BidiReactor<Request, Response>::OnDone() {
  const std::shared_ptr<BidiReactor> self = std::move(self_);  // may destroy this object
  OnEnd();
}

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_BIDI_REACTOR_H_
