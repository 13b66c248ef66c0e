#include "datastore/redis/redis_client_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kLargeArg = 1024;  // from here on gathering is cheaper than copying
constexpr size_t kMaxPieces = 64;   // of one system call
constexpr size_t kMaxTlsWrite = size_t{1} << 20;

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

// poll(2) until an event or the deadline. Returns 0 at the deadline, or -1 with errno set.
int PollUntil(pollfd* fds, nfds_t count, absl::Time deadline) {
  while (true) {
    const int ready = poll(fds, count, PollMillis(deadline));
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return -1;
    if (SystemClock::Get().Now() >= deadline) return 0;
  }
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));  // best effort; not needed for correctness
}

// Returns a connected non-blocking socket. On failure sets `error_number`.
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
  // Detects a dead peer within about a minute, also on subscriptions.
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

void RedisWire::Append(const std::vector<std::string>& args) {
  text_ += '*';
  text_ += std::to_string(args.size());
  text_ += "\r\n";
  for (const std::string& arg : args) {
    text_ += '$';
    text_ += std::to_string(arg.size());
    text_ += "\r\n";
    if (arg.size() < kLargeArg) {
      text_ += arg;
    } else {
      large_.push_back({text_.size(), arg});
    }
    text_ += "\r\n";
  }
  ++num_commands_;
}

std::vector<std::string_view> RedisWire::Pieces() const {
  std::vector<std::string_view> pieces;
  pieces.reserve(2 * large_.size() + 1);
  const std::string_view text = text_;
  size_t at = 0;
  for (const Large& large : large_) {
    pieces.push_back(text.substr(at, large.at - at));
    pieces.push_back(large.bytes);
    at = large.at;
  }
  if (at < text.size()) pieces.push_back(text.substr(at));
  return pieces;
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
  if (options.tls.enabled) {
    // A file that cannot be used now may be in the middle of its renewal.
    absl::StatusOr<SslPtr> tls = NewRedisTls(options.tls, options.host, fd);
    if (!tls.ok()) return Unavailable(peer, Message(tls.status()));
    connection->tls_ = *std::move(tls);
    FRESHET_RETURN_IF_ERROR(connection->Handshake(deadline));
  }
  if (!options.password.empty()) {
    FRESHET_RETURN_IF_ERROR(connection->Authenticate(options, deadline));
  }
  return connection;
}

absl::Status RedisConnection::Handshake(absl::Time deadline) {
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(tls_.get());
    if (result == 1) return absl::OkStatus();
    const long verified = SSL_get_verify_result(tls_.get());  // NOLINT(google-runtime-int)
    if (verified != X509_V_OK) {
      return Unavailable(
          peer_, StrCat("its certificate is refused: ", X509_verify_cert_error_string(verified)));
    }
    FRESHET_RETURN_IF_ERROR(TlsResult(result, "TLS handshake"));
    FRESHET_RETURN_IF_ERROR(Poll(SSL_want_write(tls_.get()) ? POLLOUT : POLLIN, deadline).status());
  }
}

absl::Status RedisConnection::TlsResult(int result, std::string_view what) {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return absl::OkStatus();
    case SSL_ERROR_ZERO_RETURN:
      return Unavailable(peer_, "the connection was closed");
    case SSL_ERROR_SYSCALL:
      return errno != 0 ? UnavailableErrno(peer_, what, errno)
                        : Unavailable(peer_, "the connection was closed");
    default:
      return Unavailable(peer_, StrCat(what, ": ", TakeSslError()));
  }
}

absl::Status RedisConnection::Authenticate(const RedisOptions& options, absl::Time deadline) {
  RedisWire wire;
  std::vector<std::string> command = {"AUTH", options.password};
  if (!options.username.empty()) command.insert(command.begin() + 1, options.username);
  wire.Append(command);
  FRESHET_ASSIGN_OR_RETURN(const std::vector<RedisRawReply> replies, Exchange(wire, deadline));
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
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int read = SSL_read(tls_.get(), buffer_.data(), static_cast<int>(buffer_.size()));
    if (read <= 0) return TlsResult(read, "read");
    return parser_.Feed({buffer_.data(), static_cast<size_t>(read)});
  }
  const ssize_t count = recv(fd_, buffer_.data(), buffer_.size(), 0);
  if (count > 0) return parser_.Feed({buffer_.data(), static_cast<size_t>(count)});
  if (count == 0) return Unavailable(peer_, "the connection was closed");
  if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
  return UnavailableErrno(peer_, "read", errno);
}

absl::Status RedisConnection::WriteSome(std::vector<std::string_view>& pieces, size_t& first) {
  FRESHET_ASSIGN_OR_RETURN(size_t left,
                           tls_ != nullptr ? WriteTls(pieces[first]) : WritePlain(pieces, first));
  while (left > 0) {
    const size_t taken = std::min(left, pieces[first].size());
    pieces[first].remove_prefix(taken);
    left -= taken;
    if (pieces[first].empty()) ++first;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisConnection::WriteTls(std::string_view piece) {
  ERR_clear_error();
  const int count =
      SSL_write(tls_.get(), piece.data(), static_cast<int>(std::min(piece.size(), kMaxTlsWrite)));
  if (count > 0) return static_cast<size_t>(count);
  FRESHET_RETURN_IF_ERROR(TlsResult(count, "write"));
  return size_t{0};
}

absl::StatusOr<size_t> RedisConnection::WritePlain(const std::vector<std::string_view>& pieces,
                                                   size_t first) {
  std::array<iovec, kMaxPieces> vectors = {};
  msghdr message = {};
  message.msg_iov = vectors.data();
  for (size_t i = first; i < pieces.size() && message.msg_iovlen < kMaxPieces; ++i) {
    // sendmsg does not modify the buffers.
    vectors[message.msg_iovlen++] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
  }
  const ssize_t count = sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN && errno != EINTR) {
    return UnavailableErrno(peer_, "write", errno);
  }
  return static_cast<size_t>(std::max<ssize_t>(count, 0));
}

absl::StatusOr<std::vector<RedisRawReply>> RedisConnection::Exchange(const RedisWire& wire,
                                                                     absl::Time deadline) {
  std::vector<std::string_view> pieces = wire.Pieces();
  size_t first = 0;
  std::vector<RedisRawReply> replies;
  replies.reserve(wire.num_commands());
  while (first < pieces.size() || replies.size() < wire.num_commands()) {
    if (first < pieces.size()) FRESHET_RETURN_IF_ERROR(WriteSome(pieces, first));
    const short events = first == pieces.size() ? POLLIN : POLLIN | POLLOUT;
    FRESHET_ASSIGN_OR_RETURN(const short happened, Poll(events, deadline));
    if ((happened & ~POLLOUT) == 0) continue;
    FRESHET_RETURN_IF_ERROR(ReadSome());
    while (replies.size() < wire.num_commands()) {
      FRESHET_ASSIGN_OR_RETURN(std::optional<RedisRawReply> reply, parser_.Next());
      if (!reply.has_value()) break;
      replies.push_back(*std::move(reply));
    }
  }
  if (parser_.HasLeftover()) return DataLoss("redis at ", peer_, ": more replies than commands");
  return replies;
}

absl::Status RedisConnection::Send(const RedisWire& wire, absl::Time deadline) {
  std::vector<std::string_view> pieces = wire.Pieces();
  size_t first = 0;
  while (true) {
    FRESHET_RETURN_IF_ERROR(WriteSome(pieces, first));
    if (first == pieces.size()) return absl::OkStatus();
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

bool RedisConnection::IsIdle() {
  if (parser_.HasLeftover()) return false;
  pollfd now = {fd_, POLLIN, 0};
  if (poll(&now, 1, 0) == 0) return true;
  if (tls_ == nullptr) return false;
  // It may be a record of TLS' own, such as a session ticket.
  char byte = 0;
  ERR_clear_error();
  const int read = SSL_peek(tls_.get(), &byte, 1);
  return read <= 0 && SSL_get_error(tls_.get(), read) == SSL_ERROR_WANT_READ;
}

}  // namespace freshet
