#ifndef FRESHET_TESTS_SERVICES_RUNTIME_RAW_CONNECTION_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_RAW_CONNECTION_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "services/runtime/endpoint_options.h"

namespace freshet {

// A TCP connection that sends raw bytes. Confined to one thread.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) {
    const auto where = runtime::ParseHostPort(address);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(where->port));
    ::inet_pton(AF_INET, where->host.c_str(), &to.sin_addr);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    connected_ = ::connect(fd_, static_cast<sockaddr*>(static_cast<void*>(&to)), sizeof(to)) == 0;
  }
  ~RawConnection() { ::close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool connected() const { return connected_; }
  bool Send(const std::string& bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Half-closes the connection.
  void FinishSending() { ::shutdown(fd_, SHUT_WR); }
  // Reads until the peer closes. `closed` reports whether that happened within 10 s.
  std::string ReadAll(bool* closed = nullptr) {
    std::string all;
    bool open = true;
    while (open && Read(all, 4096, open)) {
    }
    if (closed != nullptr) *closed = !open;
    return all;
  }
  // Reads until `end` has been read, or as ReadAll(). Reads nothing after it.
  std::string ReadThrough(const std::string& end) {
    std::string all;
    bool open = true;
    while (open && !all.ends_with(end) && Read(all, 1, open)) {
    }
    return all;
  }

 private:
  // Appends up to `size` bytes to `all`. False: none came within 10 s.
  bool Read(std::string& all, size_t size, bool& open) const {
    pollfd polled{fd_, POLLIN, 0};
    char buffer[4096];
    if (::poll(&polled, 1, 10'000) != 1) return false;
    const ssize_t got = ::recv(fd_, buffer, size, 0);
    open = got > 0;
    if (open) all.append(buffer, static_cast<size_t>(got));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_RAW_CONNECTION_H_
