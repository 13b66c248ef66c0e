#include "services/tunnel/tunnel_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Of one link before the others have their turn.
constexpr int kRounds = 16;
// For both sides to close after the end of one.
constexpr absl::Duration kLinger = absl::Seconds(2);

absl::Status Unavailable(const std::string& what, int error) {
  return StatusOf(absl::StatusCode::kUnavailable, what, ": ", std::strerror(error));
}

void SetOption(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));  // best effort: the link works without
}

// A peer that vanished without a word is noticed within about 90 s: on an idle connection by
// keepalive, 60 + 3 * 10 s, on one with bytes under way by the user timeout, in ms. A peer that
// takes nothing for so long counts as gone, too.
void SetSocketOptions(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 90'000);
}

std::string TlsReason(SSL* ssl) {
  const long verified = SSL_get_verify_result(ssl);  // NOLINT(google-runtime-int): OpenSSL's type
  if (verified != X509_V_OK) return X509_verify_cert_error_string(verified);
  const unsigned long code = ERR_peek_error();  // NOLINT(google-runtime-int)
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "connection lost" : reason;
}

}  // namespace

absl::StatusOr<UniqueFd> BeginConnect(const SocketAddress& target) {
  UniqueFd fd(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return Unavailable("socket", errno);
  SetSocketOptions(fd.get());
  const auto* address = static_cast<const sockaddr*>(static_cast<const void*>(&target.storage));
  if (::connect(fd.get(), address, target.size) != 0 && errno != EINPROGRESS) {
    return Unavailable("connect", errno);
  }
  return fd;
}

TunnelLink::TunnelLink(TlsContext& context, bool server, UniqueFd accepted,
                       const SocketAddress* target, absl::Time now, absl::Time setup_deadline)
    : context_(context), server_(server), deadline_(setup_deadline) {
  SetSocketOptions(accepted.get());
  (server ? tls_fd_ : plain_) = std::move(accepted);
  Begin(target, now);
}

void TunnelLink::Begin(const SocketAddress* target, absl::Time now) {
  if (target == nullptr) {
    return End(StatusOf(absl::StatusCode::kUnavailable, "the address is not resolved yet"));
  }
  target_ = *target;
  if (server_) return StartTls(now);
  absl::StatusOr<UniqueFd> fd = BeginConnect(target_);
  if (!fd.ok()) return End(fd.status());
  tls_fd_ = *std::move(fd);
}

void TunnelLink::End(absl::Status status) {
  state_ = State::kEnded;
  status_ = std::move(status);
  hurried_ = false;
}

void TunnelLink::StartTls(absl::Time now) {
  absl::StatusOr<SslPtr> ssl = context_.NewConnection(tls_fd_.get(), now);
  if (!ssl.ok()) return End(ssl.status());
  ssl_ = *std::move(ssl);
  state_ = State::kHandshaking;
}

bool TunnelLink::FinishConnect(const UniqueFd& fd) {
  pollfd wait{fd.get(), POLLOUT, 0};
  if (::poll(&wait, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0) return true;
  End(Unavailable("connect", error));
  return false;
}

void TunnelLink::Handshake() {
  tls_wants_write_ = false;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    HandleTls(result, /*writing=*/false);
    return;
  }
  if (const absl::Status allowed = context_.CheckPeer(ssl_.get()); !allowed.ok()) {
    SSL_shutdown(ssl_.get());
    return End(allowed);
  }
  if (!server_) {
    state_ = State::kOpen;
    return;
  }
  absl::StatusOr<UniqueFd> fd = BeginConnect(target_);
  if (!fd.ok()) return End(fd.status());
  plain_ = *std::move(fd);
  state_ = State::kReaching;
}

bool TunnelLink::HandleTls(int result, bool writing) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      if (writing) write_wants_read_ = true;
      return true;
    case SSL_ERROR_WANT_WRITE:
      tls_wants_write_ = true;
      return true;
    case SSL_ERROR_ZERO_RETURN:
      if (state_ == State::kOpen) {
        tls_ended_ = true;
        return true;
      }
      [[fallthrough]];
    default:
      End(StatusOf(absl::StatusCode::kUnavailable, "tls: ", TlsReason(ssl_.get())));
      ERR_clear_error();
      return false;
  }
}

bool TunnelLink::ReadPlain() {
  if (!to_tls_.empty() || plain_ended_) return false;
  const std::span<std::byte> room = to_tls_.Room();
  const ssize_t count = ::recv(plain_.get(), room.data(), room.size(), 0);
  if (count > 0) {
    to_tls_.Filled(static_cast<size_t>(count));
    return true;
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  plain_ended_ = true;  // a reset ends it like a close
  return true;
}

bool TunnelLink::WriteTls() {
  if (to_tls_.empty()) return false;
  if (tls_ended_) {  // nobody reads it; what the peer sent is still passed on
    to_tls_.Clear();
    write_wants_read_ = false;
    return true;
  }
  const std::span<const std::byte> data = to_tls_.Data();
  ERR_clear_error();
  const int count = SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()));
  if (count <= 0) {
    HandleTls(count, /*writing=*/true);
    return false;
  }
  write_wants_read_ = false;
  to_tls_.Taken(static_cast<size_t>(count));
  return true;
}

bool TunnelLink::ReadTls() {
  if (!to_plain_.empty() || tls_ended_) return false;
  const std::span<std::byte> room = to_plain_.Room();
  ERR_clear_error();
  const int count = SSL_read(ssl_.get(), room.data(), static_cast<int>(room.size()));
  if (count <= 0) {
    HandleTls(count, /*writing=*/false);
    return tls_ended_;
  }
  to_plain_.Filled(static_cast<size_t>(count));
  return true;
}

bool TunnelLink::WritePlain() {
  if (to_plain_.empty()) return false;
  const std::span<const std::byte> data = to_plain_.Data();
  const ssize_t count = ::send(plain_.get(), data.data(), data.size(), MSG_NOSIGNAL);
  if (count > 0) {
    to_plain_.Taken(static_cast<size_t>(count));
    return true;
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (plain_ended_) {  // it has closed; what it sent is still passed on
    to_plain_.Clear();
    return true;
  }
  End(Unavailable("plain side", count < 0 ? errno : EPIPE));
  return false;
}

void TunnelLink::Linger(absl::Time now) {
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::shutdown(tls_fd_.get(), SHUT_WR);
  ::shutdown(plain_.get(), SHUT_WR);
  state_ = State::kLingering;
  deadline_ = now + kLinger;
}

void TunnelLink::Drain() {
  const std::span<std::byte> scratch = to_tls_.Room();
  for (UniqueFd* const fd : {&tls_fd_, &plain_}) {
    for (int round = 0; fd->get() >= 0 && round < kRounds; ++round) {
      const ssize_t count = ::recv(fd->get(), scratch.data(), scratch.size(), 0);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (count <= 0) *fd = UniqueFd();
    }
  }
  if (tls_fd_.get() < 0 && plain_.get() < 0) End(absl::OkStatus());
}

void TunnelLink::Pump(absl::Time now) {
  tls_wants_write_ = false;
  bool progress = true;
  for (int round = 0; progress && round < kRounds; ++round) {
    progress = ReadPlain();
    if (state_ == State::kOpen) progress |= WriteTls();
    if (state_ == State::kOpen) progress |= ReadTls();
    if (state_ == State::kOpen) progress |= WritePlain();
    if (state_ != State::kOpen) return;
    if ((plain_ended_ && to_tls_.empty()) || (tls_ended_ && to_plain_.empty())) {
      return Linger(now);
    }
  }
  hurried_ = progress;
}

bool TunnelLink::Step(absl::Time now) {
  hurried_ = false;
  if (state_ == State::kConnecting && FinishConnect(tls_fd_)) StartTls(now);
  if (state_ == State::kHandshaking) Handshake();
  if (state_ == State::kReaching && FinishConnect(plain_)) state_ = State::kOpen;
  if (state_ == State::kOpen) Pump(now);
  if (state_ == State::kLingering) {
    Drain();
    if (state_ == State::kLingering && now >= deadline_) End(absl::OkStatus());
  } else if (state_ != State::kOpen && state_ != State::kEnded && now >= deadline_) {
    End(StatusOf(absl::StatusCode::kDeadlineExceeded, "no connection in time"));
  }
  return state_ != State::kEnded;
}

void TunnelLink::AddWaits(std::vector<pollfd>& waits) const {
  pollfd plain{plain_.get(), 0, 0};
  pollfd tls{tls_fd_.get(), 0, 0};
  switch (state_) {
    case State::kConnecting:
      tls.events = POLLOUT;
      break;
    case State::kHandshaking:
      tls.events = tls_wants_write_ ? POLLOUT : POLLIN;
      break;
    case State::kReaching:
      plain.events = POLLOUT;
      break;
    case State::kOpen: {
      const bool read_plain = to_tls_.empty() && !plain_ended_;
      const bool read_tls = (to_plain_.empty() && !tls_ended_) || write_wants_read_;
      const bool write_tls = tls_wants_write_ || (!to_tls_.empty() && !write_wants_read_);
      plain.events =
          static_cast<int16_t>((read_plain ? POLLIN : 0) | (to_plain_.empty() ? 0 : POLLOUT));
      tls.events = static_cast<int16_t>((read_tls ? POLLIN : 0) | (write_tls ? POLLOUT : 0));
      break;
    }
    case State::kLingering:
      plain.events = POLLIN;
      tls.events = POLLIN;
      break;
    case State::kEnded:
      break;
  }
  for (const pollfd& wait : {plain, tls}) {
    // Without an event asked for, a hang-up would be told again and again.
    if (wait.fd >= 0 && wait.events != 0) waits.push_back(wait);
  }
}

}  // namespace freshet
