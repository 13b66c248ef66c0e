#ifndef FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_API_SERVER_H_
#define FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_API_SERVER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace freshet {

// An HTTP server on its own port. Answers one request per connection, one connection at a time.
class FakeApiServer {
 public:
  struct Request {
    std::string head;  // request line and headers
    std::string body;
    // For example "PATCH /path".
    std::string call() const { return head.substr(0, head.find(" HTTP/")); }
  };
  // Returns the raw response; "" closes the connection.
  using Handler = std::function<std::string(const Request&)>;

  // Uses TLS if PEM files are given.
  explicit FakeApiServer(Handler handler, const std::string& cert = "", const std::string& key = "")
      : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::signal(SIGPIPE, SIG_IGN);
    if (!cert.empty()) {
      tls_.reset(SSL_CTX_new(TLS_server_method()));
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(tls_.get(), cert.c_str()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(tls_.get(), key.c_str(), SSL_FILETYPE_PEM), 1);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), raw, size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), raw, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](std::stop_token stop) { Serve(stop); });
  }

  std::string url() const {
    return StrCat(tls_ != nullptr ? "https" : "http", "://127.0.0.1:", port_);
  }
  std::vector<Request> requests() {
    MutexLock lock(mu_);
    return requests_;
  }
  static std::string Answer(int status, const std::string& body) {
    return StrCat("HTTP/1.1 ", status,
                  " x\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                  "\r\nConnection: close\r\n\r\n", body);
  }

 private:
  struct TlsFree {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  void Serve(std::stop_token stop) {
    while (!stop.stop_requested()) {
      pollfd waits{listener_.get(), POLLIN, 0};
      if (::poll(&waits, 1, 20) <= 0) continue;
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const timeval patience{5, 0};
      ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
      std::unique_ptr<SSL, TlsFree> ssl;
      if (tls_ != nullptr) {
        ssl.reset(SSL_new(tls_.get()));
        SSL_set_fd(ssl.get(), connection.get());
        if (SSL_accept(ssl.get()) != 1) continue;
      }
      Request request;
      if (!Read(connection.get(), ssl.get(), request)) continue;
      {
        MutexLock lock(mu_);
        requests_.push_back(request);
      }
      const std::string answer = handler_(request);
      size_t sent = 0;
      while (sent < answer.size()) {
        const auto left = static_cast<int>(answer.size() - sent);
        const int64_t wrote = ssl != nullptr ? SSL_write(ssl.get(), answer.data() + sent, left)
                                             : ::send(connection.get(), answer.data() + sent,
                                                      answer.size() - sent, 0);
        if (wrote <= 0) break;
        sent += static_cast<size_t>(wrote);
      }
      if (ssl != nullptr) SSL_shutdown(ssl.get());
    }
  }

  static bool Read(int fd, SSL* ssl, Request& request) {
    std::string text;
    size_t end = std::string::npos;
    size_t length = 0;
    while (end == std::string::npos || text.size() < end + 4 + length) {
      char buffer[4096];
      const int64_t got = ssl != nullptr ? SSL_read(ssl, buffer, sizeof(buffer))
                                         : ::recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      text.append(buffer, static_cast<size_t>(got));
      if (end != std::string::npos) continue;
      end = text.find("\r\n\r\n");
      const size_t at = text.find("Content-Length: ");
      if (end != std::string::npos && at < end) length = std::stoul(text.substr(at + 16));
    }
    request.head = text.substr(0, end);
    request.body = text.substr(end + 4);
    return true;
  }

  const Handler handler_;
  const UniqueFd listener_;
  std::unique_ptr<SSL_CTX, TlsFree> tls_;
  int port_ = 0;
  Mutex mu_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_API_SERVER_H_
