#ifndef FRESHET_TESTS_TESTING_ANSWERING_PORT_H_
#define FRESHET_TESTS_TESTING_ANSWERING_PORT_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet {

// A listening loopback port. Given an answer, it accepts one connection, reads its request, sends
// the answer and closes it; otherwise connections wait.
class AnsweringPort {
 public:
  AnsweringPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    socklen_t size = sizeof(bound_);
    EXPECT_EQ(::listen(fd_.get(), 4), 0);  // on a free port
    EXPECT_EQ(::getsockname(fd_.get(), static_cast<sockaddr*>(static_cast<void*>(&bound_)), &size),
              0);
  }
  explicit AnsweringPort(std::string answer) : AnsweringPort() {
    thread_ = std::thread([this, text = std::move(answer)] {
      const UniqueFd client(::accept(fd_.get(), nullptr, nullptr));
      std::array<char, 4096> request;
      EXPECT_GT(::recv(client.get(), request.data(), request.size(), 0), 0);
      ::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
    });
  }
  ~AnsweringPort() {
    if (thread_.joinable()) thread_.join();
  }
  AnsweringPort(const AnsweringPort&) = delete;
  AnsweringPort& operator=(const AnsweringPort&) = delete;

  std::string address() const { return StrCat("localhost:", ntohs(bound_.sin_port)); }

 private:
  const UniqueFd fd_;
  sockaddr_in bound_{};
  std::thread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_ANSWERING_PORT_H_
