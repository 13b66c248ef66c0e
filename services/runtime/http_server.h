#ifndef FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/readiness.h"

namespace prometheus {
class Registry;
}

namespace freshet::runtime {

struct HttpRequest {
  std::string path;      // without the query; begins with '/'
  std::string query{};   // after the '?', without it
  std::string host{};    // header Host; "" without one
  std::string method{};  // GET, HEAD or POST
  // Names in lower case. The values of a repeated header are joined with ", ".
  std::map<std::string, std::string> headers{};
  std::string body{};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // additional ones
};

// Answers one request, at once or later. If it is destroyed before the answer is complete, the
// client gets status 500, or a stream that breaks off. May outlive the server. Never blocks on the
// client. Thread-safe, but the pieces of a stream are sent in the order of the calls.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // Sends the whole answer. Ignored if an answer has started.
  virtual void Send(HttpResponse response) = 0;
  // Starts an answer of unknown length, of which `head.body` is the first piece. Ignored if an
  // answer has started.
  virtual void StartStream(HttpResponse head) = 0;
  // Sends a piece of a started stream. False: the stream is not open. The client is gone, it has
  // not read HttpLimits::max_buffered_bytes of pieces, or a time limit has passed.
  virtual bool Write(std::string piece) = 0;
  // Completes a started stream.
  virtual void Finish() = 0;
  // Calls `closed` once if the client goes away (or closes its sending side) or a limit ends the
  // answer before it is complete, even if that has already happened: on the server's thread, or
  // here if the server is destroyed. Replaces the function of an earlier call. `closed` must not
  // own the reply.
  virtual void OnClosed(std::function<void()> closed) = 0;
};

// Both are called on the server's thread, one request at a time: a slow handler delays the other
// requests and answers.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
using HttpAsyncHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;
// Path without query -> answer, as for a handler. Other paths are 404.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>>;

struct HttpLimits {
  // At the limit, a new connection closes the oldest one that waits for its next request, or whose
  // request is incomplete, or that has received its answer. If all are being answered, the new one
  // is closed.
  size_t max_connections = 64;
  size_t max_request_bytes = 8192;  // of request line and headers, within a factor of 2; more: 431
  // More: 413. 0: no bodies, and POST is refused with 405. The bodies being received together hold
  // at most 64 times as much; more: 503.
  size_t max_body_bytes = 0;
  // A stream ends when the client has not read this much of it and one more piece comes.
  size_t max_buffered_bytes = 1 << 20;
  // For a whole request (408 if only its body is late) and for a whole answer. A stream ends when
  // the client reads none of its pending bytes for as long.
  absl::Duration io_timeout = absl::Seconds(5);
  // From the request to the end of its answer: then 504, or the stream ends.
  absl::Duration answer_timeout = absl::Minutes(10);
  // How long a connection waits for its next request. 0: one request per connection.
  absl::Duration idle_timeout = absl::ZeroDuration();
  // Makes the answer to a request that the server refuses itself, from its status and what is
  // wrong. nullptr: the latter as plain text.
  HttpResponse (*refusal)(int status, const std::string& message) = nullptr;
  // Called on the server's thread with a request whose body has not been received: nothing of it is
  // received, and the client is not asked for it, if there is an answer. It must be quick and not
  // throw. nullptr: every body is received.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head = nullptr;
  const char* flag = "--http-listen";  // names the address in error messages
};

// An HTTP/1.1 server for probes, metrics, status pages and APIs: GET, HEAD and POST, one thread.
// Thread-safe.
class HttpServer {
 public:
  // `listen` is HOST:PORT with a numeric host or "localhost".
  // With `tls` enabled it speaks https only and asks for no client certificate.
  // Returns INVALID_ARGUMENT: a bad address; FAILED_PRECONDITION: it cannot be listened on; errors
  // of HttpTls::Create.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpAsyncHandler handler,
                                                           const HttpLimits& limits = {},
                                                           const TlsFiles& tls = {});
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpHandler handler,
                                                           const HttpLimits& limits = {});
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           HttpRoutes routes,
                                                           const HttpLimits& limits = {});
  // Closes all connections and stops the thread. Must not be called on the server's thread.
  ~HttpServer();

  // Stops listening, closes the connections without a complete request and waits until the others
  // have been sent their answers. False: some have not within `timeout`. Must not be called on the
  // server's thread.
  bool Drain(absl::Duration timeout);

  // INVALID_ARGUMENT, naming `flag`: `listen` is not HOST:PORT as Start wants it.
  static absl::Status CheckListen(const std::string& listen, const char* flag);

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
