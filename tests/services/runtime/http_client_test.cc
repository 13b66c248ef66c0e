#include "services/runtime/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>

#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet::runtime {
namespace {

// A loopback port with a listening socket. Connections wait until Serve().
class WaitingPort {
 public:
  WaitingPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    socklen_t size = sizeof(bound_);
    EXPECT_EQ(::listen(fd_.get(), 4), 0);  // listens on a free port
    EXPECT_EQ(::getsockname(fd_.get(), static_cast<sockaddr*>(static_cast<void*>(&bound_)), &size),
              0);
  }
  std::string address() const { return StrCat("localhost:", ntohs(bound_.sin_port)); }
  // Accepts a connection, reads its request, sends `answer` and closes it.
  void Serve(const std::string& answer) const {
    const UniqueFd client(::accept(fd_.get(), nullptr, nullptr));
    std::array<char, 4096> request;
    EXPECT_GT(::recv(client.get(), request.data(), request.size(), 0), 0);
    ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }

 private:
  const UniqueFd fd_;
  sockaddr_in bound_{};
};

HttpResponse GetFromServerThatSends(const std::string& answer) {
  const WaitingPort port;
  std::thread server([&] { port.Serve(answer); });
  const HttpResponse response = HttpGet(port.address(), "/", absl::Seconds(10));
  server.join();
  return response;
}

TEST(HttpGet, ReadsAWholeAnswer) {
  const HttpResponse response = GetFromServerThatSends(
      "HTTP/1.1 503 Not Now\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\nno\r\n1\r\n!\r\n0\r\n\r\n");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.content_type, "a/b");
  EXPECT_EQ(response.body, "no!");
  EXPECT_EQ(GetFromServerThatSends("HTTP/1.0 200 OK\r\n\r\nto the end").body, "to the end");
}

TEST(HttpGet, HasNoAnswerFromAServerThatSendsAnythingElse) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  for (const std::string& bytes :
       {std::string(), std::string("SSH-2.0-OpenSSH\r\n"), std::string(100, '\0'), ok,
        std::string("HTTP/9.9 200 OK\r\n\r\n"), ok + "Content-Length: 5\r\n\r\nhi",
        ok + "Content-Length: -5\r\n\r\nhi", ok + "Content-Length: 99999999999999999999\r\n\r\n",
        ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        ok + std::string(100'000, 'a') + "\r\n\r\n", ok + "\r\n" + std::string(9 << 20, 'a')}) {
    EXPECT_EQ(GetFromServerThatSends(bytes).status, 0) << bytes.substr(0, 60);
  }
}

TEST(HttpGet, WaitsNoLongerThanItsTimeout) {
  const WaitingPort silent;
  EXPECT_EQ(HttpGet(silent.address(), "/", absl::Milliseconds(20)).status, 0);
}

TEST(HttpGet, HasNoAnswerWithoutAServer) {
  std::string address;
  { address = WaitingPort().address(); }
  for (const std::string& nowhere : {address, std::string("nowhere"), std::string("a.b:80")}) {
    EXPECT_EQ(HttpGet(nowhere, "/", absl::Seconds(10)).status, 0) << nowhere;
  }
}

}  // namespace
}  // namespace freshet::runtime
