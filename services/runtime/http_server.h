#ifndef FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "services/runtime/http_request.h"
#include "services/runtime/readiness.h"

namespace prometheus {
class Registry;
}

namespace freshet::runtime {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // more of them
};

// Answers a request. Called on the server's thread, one at a time: who is slow holds up the others.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
// Path without query -> answer, as for a handler. Other paths are 404.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>>;

struct HttpLimits {
  // For one more the oldest without a complete request is closed, else the oldest that has its
  // answer; while all are being answered, the new one.
  size_t max_connections = 64;
  size_t max_request_bytes = 8192;               // of request line and headers; more: 431
  absl::Duration io_timeout = absl::Seconds(5);  // to send a request, or to take an answer
  const char* flag = "--http-listen";            // that gave the address, for messages
};

// A small HTTP/1.1 server for probes, metrics and status pages: GET and HEAD, no request bodies,
// one request per connection, one thread. Thread-safe.
class HttpServer {
 public:
  // `listen` is HOST:PORT with a numeric host or "localhost".
  // Returns INVALID_ARGUMENT: a bad address; FAILED_PRECONDITION: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpHandler handler,
                                                           const HttpLimits& limits = {},
                                                           const Clock& clock = SystemClock::Get());
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpRoutes routes,
                                                           const HttpLimits& limits = {},
                                                           const Clock& clock = SystemClock::Get());
  // Ends the thread and closes all connections.
  ~HttpServer();

  // HOST:PORT really bound.
  const std::string& address() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

// /healthz (200 as long as the process answers), /readyz (200 or 503 with the reasons) and
// /metrics (Prometheus text format, after a call of `before_scrape`, which may be empty).
// `readiness` and `registry` must outlive the server.
HttpRoutes ProbeRoutes(const Readiness& readiness, prometheus::Registry& registry,
                       std::function<void()> before_scrape = nullptr);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_
