#include "services/runtime/host_lookup.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>

#include "base/str_cat.h"

namespace freshet::runtime {

absl::StatusOr<std::string> LookUpHost(const std::string& host) {
  // As without a look-up. The resolver may prefer ::1, where nobody listens.
  if (host == "localhost") return std::string("127.0.0.1");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::array<char, NI_MAXHOST> numeric{};
  int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error == 0) {
    error = ::getnameinfo(found->ai_addr, found->ai_addrlen, numeric.data(), numeric.size(),
                          nullptr, 0, NI_NUMERICHOST);
    ::freeaddrinfo(found);
  }
  if (error == 0) return std::string(numeric.data());
  return StatusOf(absl::StatusCode::kUnavailable, "host ", host, ": ", ::gai_strerror(error));
}

}  // namespace freshet::runtime
