#include "services/runtime/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/log_gate.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_connection.h"
#include "services/runtime/http_connections.h"
#include "services/runtime/http_exchange.h"

namespace freshet::runtime {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kAcceptRetry(1);

absl::StatusOr<tcp::endpoint> ParseListen(const std::string& listen, const char* flag) {
  const auto where = ParseHostPort(listen);
  if (!where.has_value()) return InvalidArgument(flag, " ", listen, " is not HOST:PORT");
  error_code error;
  const auto ip =
      asio::ip::make_address(where->host == "localhost" ? "127.0.0.1" : where->host, error);
  if (!error) return tcp::endpoint(ip, static_cast<uint16_t>(where->port));
  return InvalidArgument(flag, ": \"", where->host, "\" is neither an IP address nor localhost");
}

}  // namespace

class HttpServer::Impl {
 public:
  // Throws boost::system::system_error if it cannot listen.
  Impl(const tcp::endpoint& endpoint, const std::string& host, HttpAsyncHandler handler,
       const HttpLimits& limits, std::unique_ptr<HttpTls> tls)
      : loop_(std::make_shared<HttpThread>(
            [this](HttpThread::Function function) { asio::post(io_, std::move(function)); })),
        context_{.handler = std::move(handler), .limits = limits, .thread = loop_},
        tls_(std::move(tls)),
        acceptor_(io_, endpoint),
        address_(JoinHostPort(host, acceptor_.local_endpoint().port())) {
    Accept();
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() {
    loop_->Stop();
    io_.stop();
    thread_.join();
  }
  bool Drain(absl::Duration timeout);
  const std::string& address() const { return address_; }

 private:
  void Run();
  void Accept();
  // Closes a connection in favour of a new one. False if all are being answered.
  bool MakeRoom();
  void CloseAll(HttpState state);

  const std::shared_ptr<HttpThread> loop_;
  HttpContext context_;
  const std::unique_ptr<HttpTls> tls_;  // null: plaintext
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_{io_};
  const std::string address_;
  LogGate accept_gate_;
  Notification drained_;
  std::thread thread_;
};

void HttpServer::Impl::Run() {
  io_.run();
  error_code ignored;
  acceptor_.close(ignored);
  for (const auto state : {HttpState::kIdle, HttpState::kReading, HttpState::kDraining,
                           HttpState::kAnswering, HttpState::kWriting}) {
    CloseAll(state);
  }
  io_.restart();
  io_.poll();  // functions of HttpReply::OnClosed() that are due
}

bool HttpServer::Impl::Drain(absl::Duration timeout) {
  loop_->Post([this] {
    error_code ignored;
    acceptor_.close(ignored);
    CloseAll(HttpState::kIdle);
    CloseAll(HttpState::kReading);
    context_.connections.StartDraining(drained_);
  });
  return drained_.WaitFor(timeout);
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {  // no descriptors
      const HttpConnectionPtr idle = context_.connections.Oldest(HttpState::kIdle);
      if (idle != nullptr) {
        idle->Close();
        return Accept();
      }
      if (accept_gate_.Admit(error.message(), absl::Now())) {
        FRESHET_LOG(Warning) << "event=http_not_accepted error=" << LogQuoted(error.message());
      }
      accept_retry_.expires_after(kAcceptRetry);  // does not spin
      accept_retry_.async_wait([this](error_code) {
        if (acceptor_.is_open()) Accept();
      });
      return;
    }
    if (context_.connections.size() < context_.limits.max_connections || MakeRoom()) {
      TlsSession session = tls_ == nullptr ? nullptr : tls_->Accept(socket.native_handle());
      // Before Accept: a request that has already arrived is answered before the next connection
      // can close this one.
      if (tls_ == nullptr || session != nullptr) {
        std::make_shared<HttpConnection>(std::move(socket), std::move(session), context_)->Start();
      }
    }
    Accept();
  });
}

bool HttpServer::Impl::MakeRoom() {
  for (const auto state : {HttpState::kIdle, HttpState::kReading, HttpState::kDraining}) {
    const HttpConnectionPtr oldest = context_.connections.Oldest(state);
    if (oldest == nullptr) continue;
    oldest->Close();
    return true;
  }
  return false;
}

void HttpServer::Impl::CloseAll(HttpState state) {
  while (const HttpConnectionPtr oldest = context_.connections.Oldest(state)) oldest->Close();
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
  HttpAsyncHandler answers_at_once = [handler = std::move(handler)](
                                         const HttpRequest& request,
                                         const std::shared_ptr<HttpReply>& reply) {
    reply->Send(handler(request));
  };
  return Start(listen, std::move(answers_at_once), limits);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              HttpAsyncHandler handler,
                                                              const HttpLimits& limits,
                                                              const TlsFiles& tls) {
  FRESHET_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ParseListen(listen, limits.flag));
  std::unique_ptr<HttpTls> sessions;
  if (tls.enabled()) {
    FRESHET_ASSIGN_OR_RETURN(sessions, HttpTls::Create(tls));
  }
  try {
    return std::unique_ptr<HttpServer>(new HttpServer(std::make_unique<Impl>(
        endpoint, ParseHostPort(listen)->host, std::move(handler), limits, std::move(sessions))));
  } catch (const boost::system::system_error& failure) {
    return FailedPrecondition(limits.flag, " ", listen,
                              ": cannot listen there: ", failure.code().message());
  }
}

absl::Status HttpServer::CheckListen(const std::string& listen, const char* flag) {
  return ParseListen(listen, flag).status();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
bool HttpServer::Drain(absl::Duration timeout) { return impl_->Drain(timeout); }
const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace freshet::runtime
