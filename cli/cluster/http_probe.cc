#include "cli/cluster/http_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {

int HttpStatus(const std::string& address, const std::string& path, absl::Duration timeout) {
  const std::optional<runtime::HostPort> place = runtime::ParseHostPort(address);
  if (!place || !runtime::IsLoopback(address)) return 0;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  const timeval limit = absl::ToTimeval(timeout);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  target.sin_port = htons(static_cast<uint16_t>(place->port));
  int status = 0;
  const std::string request =
      StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  std::array<char, 64> reply{};
  if (::connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    const ssize_t got = ::recv(fd, reply.data(), reply.size() - 1, MSG_WAITALL);
    const std::string_view head(reply.data(), got > 0 ? static_cast<size_t>(got) : 0);
    const size_t blank = head.find(' ');
    if (head.rfind("HTTP/1.", 0) == 0 && blank != std::string_view::npos) {
      status = std::atoi(reply.data() + blank + 1);
    }
  }
  ::close(fd);
  return status;
}

}  // namespace freshet
