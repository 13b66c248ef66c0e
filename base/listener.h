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

// A non-blocking TCP socket that listens, for a loop of poll. When a connection cannot be taken,
// for want of descriptors, it rests: connections wait in the kernel, and asked for, they would keep
// the loop turning. Confined to one thread.
class Listener {
 public:
  static constexpr absl::Duration kRest = absl::Seconds(1);

  // FAILED_PRECONDITION, beginning with `name`: the address cannot be listened on.
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

  // The port really bound; 0 when the kernel does not say it.
  int port() const {
    sockaddr_storage storage{};
    socklen_t size = sizeof(storage);
    void* const raw = &storage;
    if (::getsockname(fd_.get(), static_cast<sockaddr*>(raw), &size) != 0) return 0;
    in_port_t port = 0;  // at the same place for both families
    std::memcpy(&port, static_cast<char*>(raw) + offsetof(sockaddr_in, sin_port), sizeof(port));
    return ntohs(port);
  }

  // What to poll for reading: -1, which poll passes over, until rests_until().
  int WaitFd(absl::Time now) const { return now < rests_until_ ? -1 : fd_.get(); }
  absl::Time rests_until() const { return rests_until_; }

  // A non-blocking connection, or none (-1) when nobody waits. RESOURCE_EXHAUSTED: none can be
  // taken, it rests.
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
