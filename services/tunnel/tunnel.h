#ifndef FRESHET_SERVICES_TUNNEL_TUNNEL_H_
#define FRESHET_SERVICES_TUNNEL_TUNNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/tunnel/tls_context.h"

namespace freshet {

struct TunnelOptions {
  std::string listen;   // HOST:PORT; port 0: any free one
  std::string connect;  // HOST:PORT, perhaps a name
  // With `server` the side that listens speaks TLS, else the side that
  // connects. The other side is plain, and on loopback only.
  TunnelTls tls;
  size_t max_links = 2048;  // more connections are closed at once; see also BoundLinks
  absl::Duration setup_timeout = absl::Seconds(10);   // to connect and shake hands
  absl::Duration resolve_period = absl::Seconds(10);  // a name is looked up so often
};

// How many connections a process may have that can open `max_descriptors`: `wanted`, or as many as
// it has descriptors for, two each, beside those for all else. At least one.
struct LinkBound {
  size_t links = 0;
  std::string reason;  // empty: as many as wanted
};
LinkBound BoundLinks(size_t wanted, uint64_t max_descriptors);

// INVALID_ARGUMENT naming the flag: a bad address, a plain side that is not on
// loopback, TLS settings that contradict each other.
absl::Status ValidateTunnel(const TunnelOptions& options);

// Brings the connections of a program that has no TLS into TLS, or those of its
// clients out of it. Two threads: one for all connections, one that looks the
// name up. Has no more connections than BoundLinks says for the process' limit
// of descriptors at its start. Thread-safe.
class Tunnel {
 public:
  // INVALID_ARGUMENT, NOT_FOUND: see ValidateTunnel and TlsContext;
  // FAILED_PRECONDITION: the address cannot be listened on. A target that
  // cannot be reached is no error: connections then end.
  static absl::StatusOr<std::unique_ptr<Tunnel>> Start(const TunnelOptions& wanted);
  // Closes all connections.
  ~Tunnel();

  // HOST:PORT really bound.
  const std::string& address() const;

 private:
  class Loop;
  explicit Tunnel(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

// OK when something accepts connections at HOST:PORT, a numeric host. Blocks up
// to 2 s.
absl::Status CheckListening(const std::string& address);

}  // namespace freshet

#endif  // FRESHET_SERVICES_TUNNEL_TUNNEL_H_
