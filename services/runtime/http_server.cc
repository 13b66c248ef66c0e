#include "services/runtime/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "base/listener.h"
#include "base/log.h"
#include "base/log_gate.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_request.h"

namespace freshet::runtime {
namespace {

constexpr int kBacklog = 64;

absl::StatusOr<sockaddr_storage> SocketAddress(const HostPort& where, const char* flag,
                                               socklen_t& size) {
  sockaddr_storage storage{};
  const std::string host = where.host == "localhost" ? "127.0.0.1" : where.host;
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(where.port));
    size = sizeof(v4);
    std::memcpy(&storage, &v4, sizeof(v4));
    return storage;
  }
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(where.port));
    size = sizeof(v6);
    std::memcpy(&storage, &v6, sizeof(v6));
    return storage;
  }
  return InvalidArgument(flag, ": \"", where.host, "\" is neither an IP address nor localhost");
}

absl::StatusOr<Listener> Listen(const std::string& listen, const char* flag) {
  const auto where = ParseHostPort(listen);
  if (!where.has_value()) return InvalidArgument(flag, " ", listen, " is not HOST:PORT");
  socklen_t size = 0;
  FRESHET_ASSIGN_OR_RETURN(const sockaddr_storage address, SocketAddress(*where, flag, size));
  return Listener::On(address, size, kBacklog, StrCat(flag, " ", listen));
}

std::string Serialize(const HttpResponse& response, bool with_body) {
  std::string text = StrCat("HTTP/1.1 ", response.status, " ", HttpReason(response.status),
                            "\r\nContent-Type: ", response.content_type,
                            "\r\nContent-Length: ", response.body.size(),
                            "\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n");
  if (response.status == 405) text += "Allow: GET, HEAD\r\n";
  for (const auto& [name, value] : response.headers) {
    text += StrCat(name, ": ", value, "\r\n");
  }
  text += "Connection: close\r\n\r\n";
  if (with_body) text += response.body;
  return text;
}

}  // namespace

// Owner of all connections; everything but the constructor and Stop runs on its thread.
class HttpServer::Loop {
 public:
  Loop(Listener listener, UniqueFd wake_read, UniqueFd wake_write, std::string address,
       HttpHandler handler, const HttpLimits& limits, const Clock& clock)
      : listener_(std::move(listener)),
        wake_read_(std::move(wake_read)),
        wake_write_(std::move(wake_write)),
        address_(std::move(address)),
        handler_(std::move(handler)),
        limits_(limits),
        clock_(clock),
        thread_([this] { Run(); }) {}
  ~Loop() {
    stop_ = true;
    const char byte = 0;
    while (::write(wake_write_.get(), &byte, 1) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  struct Connection {
    UniqueFd fd;
    absl::Time deadline;
    std::string input;
    std::string output;  // not empty: the request has been answered
    size_t sent = 0;
    bool draining = false;  // all sent; waits for the client to close, so that it reads the answer
  };

  void Run();
  void Accept();
  // Closes the oldest connection without a complete request, so that idle ones do not keep probes
  // out, else the oldest whose answer has been sent whole. False: all are being answered.
  bool MakeRoom();
  // False when the connection is to be closed.
  bool Advance(Connection& connection);
  bool Receive(Connection& connection);
  bool SendMore(Connection& connection);
  void Answer(Connection& connection, const HttpParse& parse);
  int TimeoutMs() const;

  Listener listener_;
  UniqueFd wake_read_;
  UniqueFd wake_write_;
  const std::string address_;
  const HttpHandler handler_;
  const HttpLimits limits_;
  const Clock& clock_;
  std::list<Connection> connections_;  // the oldest first
  LogGate accept_gate_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void HttpServer::Loop::Run() {
  while (!stop_) {
    std::vector<pollfd> polled = {{wake_read_.get(), POLLIN, 0},
                                  {listener_.WaitFd(clock_.Now()), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const bool writes = !connection.output.empty() && !connection.draining;
      polled.push_back({connection.fd.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    if (::poll(polled.data(), polled.size(), TimeoutMs()) < 0 && errno != EINTR) {
      FRESHET_LOG(Error) << "event=http_stopped error=" << LogQuoted(std::strerror(errno));
      return;
    }
    const absl::Time now = clock_.Now();
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      const bool keep = (polled[i].revents == 0 || Advance(*it)) && now < it->deadline;
      it = keep ? std::next(it) : connections_.erase(it);
    }
    if ((polled[1].revents & POLLIN) != 0) Accept();
  }
}

int HttpServer::Loop::TimeoutMs() const {
  absl::Duration wait = absl::Seconds(60);
  const absl::Time now = clock_.Now();
  if (now < listener_.rests_until()) wait = listener_.rests_until() - now;
  for (const Connection& connection : connections_) {
    wait = std::min(wait, connection.deadline - now);
  }
  return static_cast<int>(absl::ToInt64Milliseconds(std::max(wait, absl::ZeroDuration()))) + 1;
}

void HttpServer::Loop::Accept() {
  for (int i = 0; i < kBacklog; ++i) {
    const absl::Time now = clock_.Now();
    absl::StatusOr<UniqueFd> fd = listener_.Accept(now);
    if (!fd.ok()) {
      if (accept_gate_.Admit(Message(fd.status()), now)) {
        FRESHET_LOG(Warning) << "event=http_not_accepted error=" << LogQuoted(Message(fd.status()));
      }
      return;
    }
    if (fd->get() < 0) return;
    if (connections_.size() >= limits_.max_connections && !MakeRoom()) continue;
    connections_.push_back({*std::move(fd), now + limits_.io_timeout, {}, {}, 0, false});
    // Its request is often there already: answered, it is not closed for the next one.
    if (!Advance(connections_.back())) connections_.pop_back();
  }
}

bool HttpServer::Loop::MakeRoom() {
  auto oldest = std::ranges::find_if(
      connections_, [](const Connection& connection) { return connection.output.empty(); });
  if (oldest == connections_.end()) {
    oldest = std::ranges::find_if(connections_, &Connection::draining);
  }
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

bool HttpServer::Loop::Advance(Connection& connection) {
  return connection.output.empty() || connection.draining ? Receive(connection)
                                                          : SendMore(connection);
}

bool HttpServer::Loop::Receive(Connection& connection) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  if (connection.draining) return true;  // what follows an answered request is dropped
  connection.input.append(buffer.data(), static_cast<size_t>(got));
  const HttpParse parse = ParseHttpRequest(connection.input, limits_.max_request_bytes);
  if (parse.state == HttpParse::State::kIncomplete) return true;
  Answer(connection, parse);
  return SendMore(connection);
}

void HttpServer::Loop::Answer(Connection& connection, const HttpParse& parse) {
  HttpResponse response;
  if (parse.state == HttpParse::State::kRefused) {
    response.status = parse.status;
  } else {
    try {
      response = handler_(parse.request);
    } catch (const std::exception& error) {
      FRESHET_LOG(Error) << "event=http_failed path=" << LogQuoted(parse.request.path)
                         << " error=" << LogQuoted(error.what());
      response = {500, response.content_type, ""};
    }
  }
  if (response.status != 200 && response.body.empty()) {
    response.body = StrCat(HttpReason(response.status), "\n");
  }
  connection.input.clear();
  connection.output = Serialize(response, !parse.request.head);
  connection.deadline = clock_.Now() + limits_.io_timeout;
}

bool HttpServer::Loop::SendMore(Connection& connection) {
  const std::string& out = connection.output;
  while (connection.sent < out.size()) {
    const ssize_t sent = ::send(connection.fd.get(), out.data() + connection.sent,
                                out.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EINTR || errno == EAGAIN;
    connection.sent += static_cast<size_t>(sent);
  }
  // Closing with unread bytes would reset the connection and lose the answer at the client.
  ::shutdown(connection.fd.get(), SHUT_WR);
  connection.draining = true;
  return true;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              HttpRoutes routes,
                                                              const HttpLimits& limits,
                                                              const Clock& clock) {
  HttpHandler handler = [routes = std::move(routes)](const HttpRequest& request) {
    const auto route = routes.find(request.path);
    return route == routes.end() ? HttpResponse{.status = 404} : route->second();
  };
  return Start(listen, std::move(handler), limits, clock);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              HttpHandler handler,
                                                              const HttpLimits& limits,
                                                              const Clock& clock) {
  FRESHET_ASSIGN_OR_RETURN(Listener listener, Listen(listen, limits.flag));
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return ResourceExhausted("no pipe: ", std::strerror(errno));
  }
  UniqueFd wake_read(pipe[0]);
  UniqueFd wake_write(pipe[1]);
  const std::string address = JoinHostPort(ParseHostPort(listen)->host, listener.port());
  return std::unique_ptr<HttpServer>(new HttpServer(
      std::make_unique<Loop>(std::move(listener), std::move(wake_read), std::move(wake_write),
                             address, std::move(handler), limits, clock)));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return loop_->address(); }

}  // namespace freshet::runtime
