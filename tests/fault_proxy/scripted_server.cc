#include "tests/fault_proxy/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/log.h"

namespace freshet {

ScriptedServer::ScriptedServer(Answer answer) : answer_(std::move(answer)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  FRESHET_CHECK(::bind(listener_, raw, size) == 0 && ::listen(listener_, 64) == 0 &&
                ::getsockname(listener_, raw, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

ScriptedServer::~ScriptedServer() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  ::close(listener_);
  ::close(wake_);
}

bool ScriptedServer::Serve(int fd) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (count <= 0) return false;
  const std::optional<std::string> answer =
      answer_(std::string(buffer.data(), static_cast<size_t>(count)));
  if (!answer.has_value()) return false;
  for (size_t sent = 0; sent < answer->size();) {
    const ssize_t part = ::send(fd, answer->data() + sent, answer->size() - sent, MSG_NOSIGNAL);
    if (part < 0) return false;
    sent += static_cast<size_t>(part);
  }
  return true;
}

void ScriptedServer::Run(const std::stop_token& stop) {
  std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
  while (!stop.stop_requested()) {
    ::poll(fds.data(), fds.size(), -1);
    for (size_t i = fds.size(); i-- > 2;) {
      if (fds[i].revents == 0 || Serve(fds[i].fd)) continue;
      ::close(fds[i].fd);
      fds.erase(fds.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if ((fds[1].revents & POLLIN) != 0) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  for (size_t i = 2; i < fds.size(); ++i) ::close(fds[i].fd);
}

}  // namespace freshet
