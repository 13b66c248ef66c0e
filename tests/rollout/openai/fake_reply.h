#ifndef FRESHET_TESTS_ROLLOUT_OPENAI_FAKE_REPLY_H_
#define FRESHET_TESTS_ROLLOUT_OPENAI_FAKE_REPLY_H_

#include <functional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "services/runtime/http_server.h"

namespace freshet {

// Collects an answer. Thread-safe.
class FakeReply final : public runtime::HttpReply {
 public:
  // Pieces of a stream that are accepted; then the client is gone.
  int max_writes = 1 << 30;
  Notification started;  // a stream
  Notification done;     // the answer is complete

  void Send(runtime::HttpResponse response) override {
    {
      const MutexLock lock(mu_);
      response_ = std::move(response);
    }
    done.Notify();
  }
  void StartStream(runtime::HttpResponse head) override {
    {
      const MutexLock lock(mu_);
      response_ = std::move(head);
    }
    started.Notify();
  }
  bool Write(std::string piece) override {
    const MutexLock lock(mu_);
    if (writes_ == max_writes) return false;
    ++writes_;
    response_.body += piece;
    return true;
  }
  void Finish() override { done.Notify(); }
  void OnClosed(std::function<void()> closed) override {
    const MutexLock lock(mu_);
    closed_ = std::move(closed);
  }

  // The client goes away.
  void Close() {
    std::function<void()> closed;
    {
      const MutexLock lock(mu_);
      closed = closed_;
    }
    if (closed) closed();
  }
  runtime::HttpResponse response() const {
    const MutexLock lock(mu_);
    return response_;
  }

 private:
  mutable Mutex mu_;
  runtime::HttpResponse response_ ABSL_GUARDED_BY(mu_);
  int writes_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_OPENAI_FAKE_REPLY_H_
