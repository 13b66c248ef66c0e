#ifndef FRESHET_SERVICES_TUNNEL_TLS_CONTEXT_H_
#define FRESHET_SERVICES_TUNNEL_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/file_stamp.h"

namespace freshet {

// One side of a TLS connection: who it is and whom it believes. Files are PEM.
struct TunnelTls {
  bool server = false;  // accepts TLS and asks for a certificate; else it connects
  std::string cert;     // chain, leaf first; may be empty for a client
  std::string key;
  std::string ca;             // roots that the peer is checked against
  bool public_roots = false;  // the system's roots, in place of `ca`
  std::string peer_name;      // for a client: DNS name or IP address in the server's
                              // certificate
  // For a server: who may connect, by the URI names of the certificate, else
  // its DNS names, else its subject: exact, "prefix*", "*suffix". Empty:
  // everybody with a certificate of `ca`.
  std::vector<std::string> allow;
  absl::Duration refresh = absl::Seconds(5);  // how often the files are looked at
};

// INVALID_ARGUMENT: settings that contradict each other, naming the flag.
absl::Status ValidateTunnelTls(const TunnelTls& tls);

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

// Makes connections under the newest files that can be used: changed ones are
// taken for new connections, broken ones are logged and the former stay.
// Confined to one thread.
class TlsContext {
 public:
  // INVALID_ARGUMENT or NOT_FOUND: a file cannot be used; the message names it.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(const TunnelTls& tls);

  // A new connection over `fd`, before its handshake; does not own the
  // descriptor.
  absl::StatusOr<SslPtr> NewConnection(int fd, absl::Time now);
  // After the handshake: PERMISSION_DENIED when the peer is not one of `allow`.
  absl::Status CheckPeer(SSL* ssl) const;

 private:
  using Stamps = std::array<runtime::FileStamp, 3>;
  explicit TlsContext(const TunnelTls& tls) : tls_(tls) {}
  Stamps Look() const;
  absl::StatusOr<std::shared_ptr<SSL_CTX>> Load() const;
  void Refresh(absl::Time now);

  const TunnelTls tls_;
  std::shared_ptr<SSL_CTX> context_;
  Stamps stamps_;
  absl::Time next_look_;
};

// Names of the peer's certificate as policies see them. Empty without a
// certificate.
std::vector<std::string> PeerNames(SSL* ssl);

}  // namespace freshet

#endif  // FRESHET_SERVICES_TUNNEL_TLS_CONTEXT_H_
