#ifndef FRESHET_BASE_LISTENER_H_
#define FRESHET_BASE_LISTENER_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet {

// Non-blocking listening TCP socket for a poll() loop. If accept fails (for example with EMFILE),
// stops accepting for kRest so that poll() does not spin; connections wait in the kernel's backlog.
// Confined to one thread.
class Listener {
 public:
  static constexpr absl::Duration kRest = absl::Seconds(1);

  // FAILED_PRECONDITION, starting with `name`: cannot listen on the address.
  static absl::StatusOr<Listener> On(const sockaddr_storage& address, socklen_t size, int backlog,
                                     const std::string& name) {
    UniqueFd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    const auto* raw = static_cast<const sockaddr*>(static_cast<const void*>(&address));
    if (fd.get() < 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::bind(fd.get(), raw, size) != 0 || ::listen(fd.get(), backlog) != 0) {
      return FailedPrecondition(name, ": cannot listen there: ", std::strerror(errno));
    }
    return Listener(std::move(fd));
  }

  // The bound port; 0 if getsockname fails.
  int port() const {
    sockaddr_storage storage{};
    socklen_t size = sizeof(storage);
    void* const raw = &storage;
    if (::getsockname(fd_.get(), static_cast<sockaddr*>(raw), &size) != 0) return 0;
    in_port_t port = 0;  // same offset for IPv4 and IPv6
    std::memcpy(&port, static_cast<char*>(raw) + offsetof(sockaddr_in, sin_port), sizeof(port));
    return ntohs(port);
  }

  // Descriptor to poll for reading; -1, which poll() ignores, until rests_until().
  int WaitFd(absl::Time now) const { return now < rests_until_ ? -1 : fd_.get(); }
  absl::Time rests_until() const { return rests_until_; }

  // Returns a non-blocking connection, or -1 if none is pending. RESOURCE_EXHAUSTED: accept failed;
  // stops accepting until rests_until().
  absl::StatusOr<UniqueFd> Accept(absl::Time now) {
    for (;;) {
      UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.get() >= 0 || errno == EAGAIN) return fd;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      rests_until_ = now + kRest;
      return ResourceExhausted("accept: ", std::strerror(errno));
    }
  }

 private:
  explicit Listener(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  absl::Time rests_until_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_BASE_LISTENER_H_
