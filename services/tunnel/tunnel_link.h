#ifndef FRESHET_SERVICES_TUNNEL_TUNNEL_LINK_H_
#define FRESHET_SERVICES_TUNNEL_TUNNEL_LINK_H_

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "services/tunnel/tls_context.h"

namespace freshet {

// An address to connect to.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Bytes on their way in one direction.
class LinkBuffer {
 public:
  bool empty() const { return begin_ == end_; }
  std::span<std::byte> Room() { return {bytes_.data(), bytes_.size()}; }  // when empty
  void Filled(size_t count) {
    begin_ = 0;
    end_ = count;
  }
  std::span<const std::byte> Data() const { return {bytes_.data() + begin_, end_ - begin_}; }
  void Taken(size_t count) { begin_ += count; }
  void Clear() { begin_ = end_; }

 private:
  std::array<std::byte, 32768> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// One connection through the tunnel: a plain and a TLS socket, and the bytes
// between them. Never blocks. A client's link (the context connects) has
// accepted the plain side and connects the other; a server's link connects the
// plain side when its peer has shown that it may. When either side ends, what
// it sent is passed on, and both are closed. Confined to one thread.
class TunnelLink {
 public:
  // `accepted` is non-blocking. `target`: where the other side is, none when it
  // is not known. The context must outlive the link.
  TunnelLink(TlsContext& context, bool server, UniqueFd accepted, const SocketAddress* target,
             absl::Time now, absl::Time setup_deadline);

  // Appends what it waits for: up to two entries, none without a descriptor.
  void AddWaits(std::vector<pollfd>& waits) const;
  // Does what can be done; false when the link has ended, with status() saying
  // why.
  bool Step(absl::Time now);
  // More could be done at once.
  bool hurried() const { return hurried_; }
  // OK: either side ended the connection.
  const absl::Status& status() const { return status_; }

 private:
  enum class State { kConnecting, kHandshaking, kReaching, kOpen, kLingering, kEnded };

  void End(absl::Status status);
  void Begin(const SocketAddress* target, absl::Time now);
  void StartTls(absl::Time now);
  // True when the socket is connected; ends the link when it cannot be.
  bool FinishConnect(const UniqueFd& fd);
  void Handshake();
  bool ReadPlain();
  bool WriteTls();
  bool ReadTls();
  bool WritePlain();
  void Pump(absl::Time now);
  // Both sides are told of the end; bytes that still come are thrown away until both have closed:
  // a socket that is closed with unread bytes loses what it has not sent yet.
  void Linger(absl::Time now);
  void Drain();
  // What an SSL call that returned `result` waits for; ends the link on an
  // error. False: ended.
  bool HandleTls(int result, bool writing);

  TlsContext& context_;
  const bool server_;
  absl::Time deadline_;  // of the state; none while it is open
  SocketAddress target_;
  State state_ = State::kConnecting;
  absl::Status status_;
  UniqueFd plain_;
  UniqueFd tls_fd_;
  SslPtr ssl_;
  LinkBuffer to_tls_;
  LinkBuffer to_plain_;
  bool plain_ended_ = false;
  bool tls_ended_ = false;
  bool tls_wants_write_ = false;   // although there may be nothing of ours to write
  bool write_wants_read_ = false;  // SSL_write goes on after a read
  bool hurried_ = false;
};

// A non-blocking socket that is connecting to `target`.
absl::StatusOr<UniqueFd> BeginConnect(const SocketAddress& target);

}  // namespace freshet

#endif  // FRESHET_SERVICES_TUNNEL_TUNNEL_LINK_H_
