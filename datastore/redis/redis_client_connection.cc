#include "datastore/redis/redis_client_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "services/base/clock.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kReadBytes = 64 << 10;

absl::Status Unavailable(std::string_view peer, std::string_view what) {
  return StatusOf(absl::StatusCode::kUnavailable, "redis at ", peer, ": ", what);
}

absl::Status UnavailableErrno(std::string_view peer, std::string_view what, int error_number) {
  return Unavailable(peer, StrCat(what, ": ", std::strerror(error_number)));
}

int PollMillis(absl::Time deadline) {
  const absl::Duration left = deadline - SystemClock::Get().Now();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::min(absl::Ceil(left, absl::Milliseconds(1)), absl::Duration(absl::Hours(1)))));
}

// poll(2) until something happens or the deadline has passed; 0 then. -1 with errno on errors.
int PollUntil(pollfd* fds, nfds_t count, absl::Time deadline) {
  while (true) {
    const int ready = poll(fds, count, PollMillis(deadline));
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return -1;
    if (SystemClock::Get().Now() >= deadline) return 0;
  }
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));  // best effort: none changes correctness
}

// A connected non-blocking socket, or the errno.
int ConnectTo(const addrinfo& address, absl::Time deadline, int* error_number) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        address.ai_protocol);
  if (fd < 0) {
    *error_number = errno;
    return -1;
  }
  *error_number = 0;
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) *error_number = errno;
  if (*error_number == EINPROGRESS) {
    pollfd wait = {fd, POLLOUT, 0};
    const int ready = PollUntil(&wait, 1, deadline);
    socklen_t size = sizeof(*error_number);
    if (ready == 0) {
      *error_number = ETIMEDOUT;
    } else if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, error_number, &size) != 0) {
      *error_number = errno;
    }
  }
  if (*error_number != 0) {
    close(fd);
    return -1;
  }
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A peer that vanished without a word is noticed within about a minute, also by subscriptions.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  return fd;
}

absl::StatusOr<int> ConnectToHost(const RedisOptions& options, const std::string& peer,
                                  absl::Time deadline) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result =
      getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (result != 0) {
    return Unavailable(peer, StrCat("name cannot be resolved: ", gai_strerror(result)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  int error_number = EHOSTUNREACH;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = ConnectTo(*address, deadline, &error_number);
    if (fd >= 0) return fd;
  }
  return UnavailableErrno(peer, "cannot connect", error_number);
}

}  // namespace

void AppendRedisCommand(const std::vector<std::string>& args, std::string& wire) {
  wire += '*';
  wire += std::to_string(args.size());
  wire += "\r\n";
  for (const std::string& arg : args) {
    wire += '$';
    wire += std::to_string(arg.size());
    wire += "\r\n";
    wire += arg;
    wire += "\r\n";
  }
}

RedisConnection::RedisConnection(int fd, std::string peer, int64_t max_reply_bytes)
    : fd_(fd), peer_(std::move(peer)), parser_(max_reply_bytes), buffer_(kReadBytes) {}

RedisConnection::~RedisConnection() { close(fd_); }

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Open(const RedisOptions& options,
                                                                       absl::Time deadline) {
  const std::string peer = StrCat(options.host, ":", options.port);
  FRESHET_ASSIGN_OR_RETURN(const int fd, ConnectToHost(options, peer, deadline));
  std::unique_ptr<RedisConnection> connection(
      new RedisConnection(fd, peer, options.max_reply_bytes));
  if (!options.password.empty()) {
    FRESHET_RETURN_IF_ERROR(connection->Authenticate(options, deadline));
  }
  return connection;
}

absl::Status RedisConnection::Authenticate(const RedisOptions& options, absl::Time deadline) {
  std::string wire;
  AppendRedisCommand({"AUTH", options.password}, wire);
  FRESHET_ASSIGN_OR_RETURN(const std::vector<RedisRawReply> replies, Exchange(wire, 1, deadline));
  if (!replies[0].is_error) return absl::OkStatus();
  const std::string& text = replies[0].reply.text;
  if (text.rfind("ERR AUTH", 0) == 0) {
    return StatusOf(absl::StatusCode::kPermissionDenied, "redis at ", peer_,
                    ": a password is given but the server has none");
  }
  return RedisErrorStatus(text, "AUTH");
}

absl::StatusOr<short> RedisConnection::Poll(short events, absl::Time deadline) {
  pollfd wait = {fd_, events, 0};
  const int ready = PollUntil(&wait, 1, deadline);
  if (ready < 0) return UnavailableErrno(peer_, "poll", errno);
  if (ready == 0) return Unavailable(peer_, "no answer in time");
  return wait.revents;
}

absl::Status RedisConnection::ReadSome() {
  const ssize_t count = recv(fd_, buffer_.data(), buffer_.size(), 0);
  if (count > 0) return parser_.Feed({buffer_.data(), static_cast<size_t>(count)});
  if (count == 0) return Unavailable(peer_, "the connection was closed");
  if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
  return UnavailableErrno(peer_, "read", errno);
}

absl::StatusOr<size_t> RedisConnection::WriteSome(std::string_view wire) {
  const ssize_t count = send(fd_, wire.data(), wire.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return UnavailableErrno(peer_, "write", errno);
}

absl::StatusOr<std::vector<RedisRawReply>> RedisConnection::Exchange(std::string_view wire,
                                                                     size_t num_replies,
                                                                     absl::Time deadline) {
  std::vector<RedisRawReply> replies;
  replies.reserve(num_replies);
  while (!wire.empty() || replies.size() < num_replies) {
    if (!wire.empty()) {
      FRESHET_ASSIGN_OR_RETURN(const size_t written, WriteSome(wire));
      wire.remove_prefix(written);
    }
    const short events = wire.empty() ? POLLIN : POLLIN | POLLOUT;
    FRESHET_ASSIGN_OR_RETURN(const short happened, Poll(events, deadline));
    if ((happened & ~POLLOUT) == 0) continue;
    FRESHET_RETURN_IF_ERROR(ReadSome());
    while (replies.size() < num_replies) {
      FRESHET_ASSIGN_OR_RETURN(std::optional<RedisRawReply> reply, parser_.Next());
      if (!reply.has_value()) break;
      replies.push_back(*std::move(reply));
    }
  }
  if (parser_.HasLeftover()) return DataLoss("redis at ", peer_, ": more replies than commands");
  return replies;
}

absl::Status RedisConnection::Send(std::string_view wire, absl::Time deadline) {
  while (true) {
    FRESHET_ASSIGN_OR_RETURN(const size_t written, WriteSome(wire));
    wire.remove_prefix(written);
    if (wire.empty()) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(Poll(POLLOUT, deadline).status());
  }
}

absl::StatusOr<std::optional<RedisRawReply>> RedisConnection::AwaitPush(int wake_fd,
                                                                        absl::Time deadline) {
  while (true) {
    FRESHET_ASSIGN_OR_RETURN(std::optional<RedisRawReply> reply, parser_.Next());
    if (reply.has_value()) return reply;
    std::array<pollfd, 2> wait = {pollfd{fd_, POLLIN, 0}, pollfd{wake_fd, POLLIN, 0}};
    const int ready = PollUntil(wait.data(), wait.size(), deadline);
    if (ready < 0) return UnavailableErrno(peer_, "poll", errno);
    if (wait[0].revents != 0) {
      FRESHET_RETURN_IF_ERROR(ReadSome());
    } else {
      return std::nullopt;
    }
  }
}

bool RedisConnection::IsIdle() const {
  if (parser_.HasLeftover()) return false;
  pollfd now = {fd_, POLLIN, 0};
  return poll(&now, 1, 0) == 0;
}

}  // namespace freshet
