#ifndef FRESHET_SERVICES_RUNTIME_HTTP_EXCHANGE_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "services/runtime/http_server.h"

namespace freshet::runtime {

// Runs functions on a server's thread while there is one. Thread-safe.
class HttpThread {
 public:
  using Function = std::function<void()>;
  explicit HttpThread(std::function<void(Function)> post) : post_(std::move(post)) {}

  // False after Stop(): the function was dropped.
  bool Post(Function function) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::function<void(Function)> post_ ABSL_GUARDED_BY(mu_);  // empty when stopped
};

// The answer to one request, between the threads that make it and the server's thread, which sends
// it. Thread-safe.
class HttpExchange {
 public:
  struct Options {
    bool head = false;    // the answer has no body
    bool chunked = true;  // the client understands chunked transfer encoding
    bool keep_alive = false;
    size_t max_buffered_bytes = 0;
  };
  enum class Phase {
    kWaiting,    // for the answer
    kStreaming,  // its start has been given
    kComplete,   // all of it has been given
    kCut,        // the server has to close the connection
    kGone,       // the server has closed the connection
  };
  struct Output {
    Phase phase;
    bool streamed;                   // the answer is a stream
    std::vector<std::string> bytes;  // to send, in this order
  };

  // `wake` tells the server that Take() returns something.
  HttpExchange(const Options& options, std::shared_ptr<HttpThread> thread,
               std::function<void()> wake)
      : options_(options), thread_(std::move(thread)), wake_(std::move(wake)) {}

  // As in HttpReply.
  void Send(HttpResponse response) ABSL_LOCKS_EXCLUDED(mu_);
  void StartStream(HttpResponse head) ABSL_LOCKS_EXCLUDED(mu_);
  bool Write(const std::string& piece) ABSL_LOCKS_EXCLUDED(mu_);
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  void OnClosed(std::function<void()> closed) ABSL_LOCKS_EXCLUDED(mu_);
  // Nobody will continue the answer.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  // For the server's thread. What was given since the last call.
  Output Take() ABSL_LOCKS_EXCLUDED(mu_);
  // `bytes` of what was taken have been sent.
  void Sent(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Nothing more can be sent. Calls the function of OnClosed() if the answer is incomplete.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Give(std::string bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GivePiece(const std::string& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the caller must call wake_, without the lock.
  bool MustWake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<HttpThread> thread_;
  const std::function<void()> wake_;
  Mutex mu_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kWaiting;
  bool streamed_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;  // since the last Take()
  std::vector<std::string> given_ ABSL_GUARDED_BY(mu_);
  size_t unsent_ ABSL_GUARDED_BY(mu_) = 0;  // bytes given, taken or not
  std::function<void()> closed_ ABSL_GUARDED_BY(mu_);
};

// The handler's side of `exchange`, which is abandoned when the reply is destroyed.
std::shared_ptr<HttpReply> ReplyTo(std::shared_ptr<HttpExchange> exchange);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_EXCHANGE_H_
