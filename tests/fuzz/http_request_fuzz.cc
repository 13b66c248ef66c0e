// Bytes from a client of the HTTP server, which arrive in pieces of as many bytes as the first one
// says: the connection answers them and ends, and its handler gets only requests within the limits.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "services/runtime/http_connection.h"

namespace freshet::runtime {
namespace {

// Small, so that inputs exceed them.
HttpLimits Limits() {
  HttpLimits limits;
  limits.max_request_bytes = 512;
  limits.max_body_bytes = 1024;
  limits.idle_timeout = absl::Seconds(60);
  return limits;
}

void Answer(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  FRESHET_CHECK(request.path.starts_with('/'));
  FRESHET_CHECK(request.method == "GET" || request.method == "HEAD" || request.method == "POST");
  FRESHET_CHECK(request.body.size() <= Limits().max_body_bytes);
  if (request.query != "stream") return reply->Send({.body = std::move(request.body)});
  reply->StartStream({.body = "first"});
  reply->Write(std::move(request.body));
  reply->Finish();
}

class Exchange {
 public:
  Exchange() : context_{Answer, Limits(), thread_} {
    FRESHET_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_.data()) == 0);
    boost::asio::ip::tcp::socket socket(io_);
    socket.assign(boost::asio::ip::tcp::v4(), ends_[1]);
    std::make_shared<HttpConnection>(std::move(socket), TlsSession(), context_)->Start();
  }
  void Send(std::string_view bytes) {
    // An error means that the connection has closed.
    while (!bytes.empty()) {
      const ssize_t sent = ::send(ends_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      const bool full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      Run();
      if (sent < 0 && !full) return;
    }
  }
  void End() {
    ::shutdown(ends_[0], SHUT_WR);
    Run();
    ::close(ends_[0]);
    Run();
    FRESHET_CHECK(context_.connections.size() == 0);
    FRESHET_CHECK(context_.body_bytes == 0);
    thread_->Stop();
    FRESHET_CHECK(answers_.empty() || answers_.starts_with("HTTP/1.1 "));
  }

 private:
  // Until nothing happens any more.
  void Run() {
    std::array<char, 4096> buffer;
    bool active = true;
    while (active) {
      io_.restart();
      active = io_.poll() > 0;
      const ssize_t size = ::recv(ends_[0], buffer.data(), buffer.size(), 0);
      if (size <= 0) continue;
      active = true;
      answers_.append(buffer.data(), static_cast<size_t>(size));
    }
  }

  boost::asio::io_context io_;
  std::shared_ptr<HttpThread> thread_ = std::make_shared<HttpThread>(
      [this](HttpThread::Function function) { boost::asio::post(io_, std::move(function)); });
  HttpContext context_;
  std::array<int, 2> ends_{};
  std::string answers_;
};

}  // namespace
}  // namespace freshet::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] == 0 ? size : data[0];
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  freshet::runtime::Exchange exchange;
  while (!bytes.empty()) {
    exchange.Send(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  exchange.End();
  return 0;
}
