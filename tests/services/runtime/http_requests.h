#ifndef FRESHET_TESTS_SERVICES_RUNTIME_HTTP_REQUESTS_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_HTTP_REQUESTS_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/runtime/http_server.h"

namespace freshet::runtime {

inline constexpr absl::Duration kGuard = absl::Seconds(10);
inline const std::string kGet = "GET / HTTP/1.1\r\n\r\n";

inline HttpLimits ApiLimits() {
  return {.max_body_bytes = 1000, .io_timeout = kGuard, .idle_timeout = kGuard};
}

// Received requests of servers, with their replies. Thread-safe.
class HttpRequests {
 public:
  struct Received {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
  };

  std::unique_ptr<HttpServer> Serve(const HttpLimits& limits = ApiLimits()) {
    auto server = HttpServer::Start(
        "127.0.0.1:0",
        [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
          MutexLock lock(mu_);
          received_.push_back({std::move(request), std::move(reply)});
          arrived_.NotifyAll();
        },
        limits);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // Waits for a request.
  Received Next() {
    MutexLock lock(mu_);
    const absl::Time deadline = absl::Now() + kGuard;
    while (received_.empty() && absl::Now() < deadline) arrived_.WaitFor(mu_, kGuard);
    EXPECT_FALSE(received_.empty());
    if (received_.empty()) return {};
    Received next = std::move(received_.front());
    received_.pop_front();
    return next;
  }

 private:
  Mutex mu_;
  CondVar arrived_;
  std::deque<Received> received_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_HTTP_REQUESTS_H_
