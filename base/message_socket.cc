#include "base/message_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

absl::Status Closed() { return absl::UnavailableError("the other side has closed"); }

bool Again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> SocketPair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, "a socket pair: ", std::strerror(errno));
  }
  return std::make_pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

absl::Status MessageSocket::Await(short events, absl::Time deadline) const {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left < absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd wanted{fd_.get(), events, 0};
    const int64_t milliseconds = std::min<int64_t>(absl::ToInt64Milliseconds(left), INT_MAX - 1);
    if (::poll(&wanted, 1, static_cast<int>(milliseconds) + 1) > 0) return absl::OkStatus();
  }
}

void MessageSocket::Shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

absl::Status MessageSocket::Send(const google::protobuf::MessageLite& message,
                                 absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const size_t size = message.ByteSizeLong();
  if (size > kMaxBytes) return InvalidArgument("a message of ", size, " bytes is too large");
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(size >> shift));
  message.AppendToString(&bytes);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t got =
        ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got > 0) {
      sent += static_cast<size_t>(got);
    } else if (!Again()) {
      return Closed();
    } else {
      FRESHET_RETURN_IF_ERROR(Await(POLLOUT, deadline));
    }
  }
  return absl::OkStatus();
}

absl::Status MessageSocket::Read(char* data, size_t size, absl::Time deadline) const {
  while (size > 0) {
    const ssize_t got = ::recv(fd_.get(), data, size, MSG_DONTWAIT);
    if (got > 0) {
      data += got;
      size -= static_cast<size_t>(got);
    } else if (got == 0 || !Again()) {
      return Closed();
    } else {
      FRESHET_RETURN_IF_ERROR(Await(POLLIN, deadline));
    }
  }
  return absl::OkStatus();
}

absl::Status MessageSocket::Receive(google::protobuf::MessageLite& message, absl::Duration timeout,
                                    size_t max_bytes) {
  const absl::Time deadline = absl::Now() + timeout;
  unsigned char prefix[4];
  FRESHET_RETURN_IF_ERROR(Read(reinterpret_cast<char*>(prefix), sizeof(prefix), deadline));
  size_t size = 0;
  for (int i = 3; i >= 0; --i) size = size << 8 | prefix[i];
  if (size > max_bytes) return DataLoss("a message of ", size, " bytes is too large");
  std::string bytes;
  // Grows with what arrives, not with what the length promises.
  while (bytes.size() < size) {
    const size_t begin = bytes.size();
    bytes.resize(std::min(size, begin + (size_t{1} << 20)));
    FRESHET_RETURN_IF_ERROR(Read(bytes.data() + begin, bytes.size() - begin, deadline));
  }
  if (!message.ParseFromString(bytes))
    return DataLoss("a message is not a ", message.GetTypeName());
  return absl::OkStatus();
}

}  // namespace freshet
