#include "services/runtime/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <exception>
#include <list>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/log_gate.h"
#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using beast::error_code;

constexpr std::chrono::seconds kAcceptRetry(1);

// Used only on the server's thread. Completion handlers own it too: they run after its socket was
// closed.
struct Connection {
  enum class State { kReading, kWriting, kDraining };

  Connection(tcp::socket socket, const HttpLimits& limits) : stream(std::move(socket)) {
    parser.header_limit(static_cast<uint32_t>(limits.max_request_bytes));
  }

  beast::tcp_stream stream;
  State state = State::kReading;
  beast::flat_buffer input;
  http::request_parser<http::empty_body> parser;
  http::response<http::string_body> response;
};
using ConnectionPtr = std::shared_ptr<Connection>;

// The status that refuses a request that cannot be parsed. 0: the connection failed, timed out or
// was closed by the client.
int RefusalOf(error_code failure) {
  using http::error;
  if (failure == error::end_of_stream || failure == error::partial_message) return 0;
  if (failure == error::header_limit) return 431;
  if (failure == error::body_limit) return 413;
  if (failure == error::bad_version) return 505;
  return failure.category() == make_error_code(error::bad_method).category() ? 400 : 0;
}

// The status that refuses a well-formed request. 0: it is served.
int RefusalOf(const http::request_parser<http::empty_body>& parser) {
  const auto& head = parser.get();
  if (head.method() != http::verb::get && head.method() != http::verb::head) return 405;
  if (!parser.is_done()) return 413;
  if (!head.target().starts_with('/') || head.count(http::field::host) > 1) return 400;
  for (const char c : head.target()) {
    if (c <= ' ' || c > '~') return 400;
  }
  return 0;
}

}  // namespace

class HttpServer::Impl {
 public:
  // Throws boost::system::system_error if it cannot listen.
  Impl(const tcp::endpoint& endpoint, const std::string& host, HttpHandler handler,
       const HttpLimits& limits)
      : handler_(std::move(handler)),
        limits_(limits),
        acceptor_(io_, endpoint),
        address_(JoinHostPort(host, acceptor_.local_endpoint().port())) {
    Accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Impl() {
    io_.stop();
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  void Accept();
  // Closes a connection in favour of a new one. False if all are being answered.
  bool MakeRoom();
  void Read(const ConnectionPtr& connection);
  void Answer(const ConnectionPtr& connection, HttpResponse answer);
  HttpResponse Handle(const http::request<http::empty_body>& head) const;
  // Reads until the client closes. Closing with unread bytes would reset the connection, and the
  // client could lose the answer.
  void Drain(const ConnectionPtr& connection);
  void Close(const ConnectionPtr& connection);

  const HttpHandler handler_;
  const HttpLimits limits_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_{io_};
  const std::string address_;
  std::list<ConnectionPtr> connections_;  // oldest first
  LogGate accept_gate_;
  std::thread thread_;
};

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error) {  // no descriptors: do not spin
      if (accept_gate_.Admit(error.message(), absl::Now())) {
        FRESHET_LOG(Warning) << "event=http_not_accepted error=" << LogQuoted(error.message());
      }
      accept_retry_.expires_after(kAcceptRetry);
      accept_retry_.async_wait([this](error_code) { Accept(); });
      return;
    }
    if (connections_.size() < limits_.max_connections || MakeRoom()) {
      connections_.push_back(std::make_shared<Connection>(std::move(socket), limits_));
      // Before Accept: a request that has already arrived is answered before the next connection
      // can close this one.
      Read(connections_.back());
    }
    Accept();
  });
}

bool HttpServer::Impl::MakeRoom() {
  for (const auto state : {Connection::State::kReading, Connection::State::kDraining}) {
    const auto oldest = std::ranges::find(connections_, state, &Connection::state);
    if (oldest == connections_.end()) continue;
    Close(ConnectionPtr(*oldest));
    return true;
  }
  return false;
}

void HttpServer::Impl::Read(const ConnectionPtr& connection) {
  connection->stream.expires_after(absl::ToChronoMilliseconds(limits_.io_timeout));
  auto received = [this, connection](error_code error, size_t) {
    const int refusal = error ? RefusalOf(error) : RefusalOf(connection->parser);
    if (error && refusal == 0) return Close(connection);
    Answer(connection,
           refusal != 0 ? HttpResponse{.status = refusal} : Handle(connection->parser.get()));
  };
  http::async_read_header(connection->stream, connection->input, connection->parser,
                          std::move(received));
}

HttpResponse HttpServer::Impl::Handle(const http::request<http::empty_body>& head) const {
  const std::string_view target(head.target().data(), head.target().size());
  const size_t question = target.find('?');
  HttpRequest request{.path = std::string(target.substr(0, question)),
                      .host = std::string(head[http::field::host])};
  if (question != target.npos) request.query = target.substr(question + 1);
  try {
    return handler_(request);
  } catch (const std::exception& error) {
    FRESHET_LOG(Error) << "event=http_failed path=" << LogQuoted(request.path)
                       << " error=" << LogQuoted(error.what());
    return {.status = 500};
  }
}

void HttpServer::Impl::Answer(const ConnectionPtr& connection, HttpResponse answer) {
  http::response<http::string_body>& response = connection->response;
  response.result(static_cast<unsigned>(answer.status));
  response.keep_alive(false);
  response.set(http::field::content_type, answer.content_type);
  response.set("X-Content-Type-Options", "nosniff");
  response.set(http::field::cache_control, "no-store");
  if (answer.status == 405) response.set(http::field::allow, "GET, HEAD");
  for (const auto& [name, value] : answer.headers) response.set(name, value);
  response.body() = std::move(answer.body);
  if (answer.status != 200 && response.body().empty()) {
    response.body() = StrCat(std::string(response.reason()), "\n");
  }
  response.prepare_payload();
  if (connection->parser.get().method() == http::verb::head) response.body().clear();

  connection->state = Connection::State::kWriting;
  connection->stream.expires_after(absl::ToChronoMilliseconds(limits_.io_timeout));
  http::async_write(connection->stream, response, [this, connection](error_code error, size_t) {
    if (error) return Close(connection);
    connection->stream.socket().shutdown(tcp::socket::shutdown_send, error);
    connection->state = Connection::State::kDraining;
    Drain(connection);
  });
}

void HttpServer::Impl::Drain(const ConnectionPtr& connection) {
  connection->input.clear();
  auto received = [this, connection](error_code error, size_t) {
    error ? Close(connection) : Drain(connection);
  };
  connection->stream.async_read_some(connection->input.prepare(4096), std::move(received));
}

void HttpServer::Impl::Close(const ConnectionPtr& connection) {
  connection->stream.close();
  connections_.remove(connection);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              HttpRoutes routes,
                                                              const HttpLimits& limits) {
  HttpHandler handler = [routes = std::move(routes)](const HttpRequest& request) {
    const auto route = routes.find(request.path);
    return route == routes.end() ? HttpResponse{.status = 404} : route->second();
  };
  return Start(listen, std::move(handler), limits);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              HttpHandler handler,
                                                              const HttpLimits& limits) {
  const auto where = ParseHostPort(listen);
  if (!where.has_value()) return InvalidArgument(limits.flag, " ", listen, " is not HOST:PORT");
  error_code error;
  const auto ip =
      asio::ip::make_address(where->host == "localhost" ? "127.0.0.1" : where->host, error);
  if (error) {
    return InvalidArgument(limits.flag, ": \"", where->host,
                           "\" is neither an IP address nor localhost");
  }
  try {
    return std::unique_ptr<HttpServer>(
        new HttpServer(std::make_unique<Impl>(tcp::endpoint(ip, static_cast<uint16_t>(where->port)),
                                              where->host, std::move(handler), limits)));
  } catch (const boost::system::system_error& failure) {
    return FailedPrecondition(limits.flag, " ", listen,
                              ": cannot listen there: ", failure.code().message());
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace freshet::runtime
