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
#include "services/runtime/readiness.h"

namespace prometheus {
class Registry;
}

namespace freshet::runtime {

struct HttpRequest {
  std::string path;     // without the query; begins with '/'
  std::string query{};  // after the '?', without it
  std::string host{};   // header Host; "" without one
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // additional ones
};

// Answers a request. Called on the server's thread, one request at a time: a slow handler delays
// the other requests.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
// Path without query -> answer, as for a handler. Other paths are 404.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>>;

struct HttpLimits {
  // At the limit, a new connection closes the oldest one whose request is incomplete, or else the
  // oldest one that has received its answer. If all are being answered, the new one is closed.
  size_t max_connections = 64;
  size_t max_request_bytes = 8192;  // of request line and headers, within a factor of 2; more: 431
  absl::Duration io_timeout = absl::Seconds(5);  // for the whole request, and the whole answer
  const char* flag = "--http-listen";            // names the address in error messages
};

// An HTTP/1.1 server for probes, metrics and status pages: GET and HEAD, no request bodies, one
// request per connection, one thread. Thread-safe.
class HttpServer {
 public:
  // `listen` is HOST:PORT with a numeric host or "localhost".
  // Returns INVALID_ARGUMENT: a bad address; FAILED_PRECONDITION: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpHandler handler,
                                                           const HttpLimits& limits = {});
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpRoutes routes,
                                                           const HttpLimits& limits = {});
  // Stops the thread and closes all connections.
  ~HttpServer();

  // The bound HOST:PORT.
  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// /healthz (200 as long as the process answers), /readyz (200 or 503 with the reasons) and
// /metrics (Prometheus text format; calls `before_scrape` first, which may be empty).
// `readiness` and `registry` must outlive the server.
HttpRoutes ProbeRoutes(const Readiness& readiness, prometheus::Registry& registry,
                       std::function<void()> before_scrape = nullptr);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_
