#ifndef FRESHET_SERVICES_RUNTIME_ENDPOINT_OPTIONS_H_
#define FRESHET_SERVICES_RUNTIME_ENDPOINT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/command_line.h"

namespace freshet::runtime {

// Certificates in PEM files, reloaded when they change.
struct TlsFiles {
  std::string cert;  // chain, leaf first
  std::string key;
  std::string ca;  // roots that verify peers
  absl::Duration refresh = absl::Seconds(10);
  bool enabled() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// A process's listeners, and its identity as a client.
struct EndpointOptions {
  std::string listen = "127.0.0.1:0";       // HOST:PORT of the gRPC services; port 0: any free one
  std::string http_listen = "127.0.0.1:0";  // of /healthz /readyz /metrics; "": none
  std::string advertise;  // HOST or HOST:PORT by which others reach us; "": the bound address
  TlsFiles tls;
  bool require_client_cert = true;  // mutual TLS; needs tls.ca
  // Name in the certificates of cluster members, see peer_name.h. "": the name in their address.
  std::string tls_peer_name;
  bool insecure = false;  // allow plaintext on non-loopback addresses
  // File whose first line is the shared secret of a loopback cluster; calls without it are refused.
  // "": without TLS every local user may call.
  std::string cluster_token_file;
  std::string authz_policy;  // JSON file, see authorization_policy.h; "": all calls allowed
  std::string users;         // JSON file, see user_list.h; "": tokens are ignored
  bool reflection = false;
  int64_t max_message_bytes = 16 << 20;
  int max_concurrent_streams = 1024;  // per connection
  int64_t memory_bytes = 512 << 20;   // limit on gRPC's buffers
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Adds --version and --listen, --http-listen, --advertise, --tls-cert, --tls-key, --tls-ca,
// --tls-no-client-cert, --tls-peer-name, --insecure, --cluster-token-file, --authz-policy,
// --reflection, --max-message-bytes, --max-concurrent-streams, --drain-timeout-ms, with the values
// in `options` as defaults. Parsing validates them with ValidateEndpoint. `options` must outlive
// the parsing.
void AddEndpointFlags(const Command& app, EndpointOptions& options);
// Adds --log-format, which takes effect when parsed. AddEndpointFlags includes it.
void AddLogFlag(const Command& app);
// Adds --users, for programs that users call.
void AddUsersFlag(const Command& app, EndpointOptions& options);

// INVALID_ARGUMENT, one line naming the flag: plaintext on a non-loopback address without
// `insecure`; an incomplete set of TLS files; a policy, users or a peer name without TLS; users
// without a policy; a cluster token with TLS or off loopback; a bad address, name or bound.
absl::Status ValidateEndpoint(const EndpointOptions& options);

// True for "localhost", 127.0.0.0/8, ::1 and "unix:PATH". Names are not resolved.
bool IsLoopback(const std::string& address);
// Whether a header Host names a loopback address or localhost, with or without a port.
bool IsLocalHost(const std::string& host);

// HOST and PORT of "HOST:PORT" or "[V6]:PORT"; nullopt if it is neither.
struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
std::optional<HostPort> ParseHostPort(const std::string& address);
// Joins them, with brackets around a v6 address.
std::string JoinHostPort(const std::string& host, int port);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_ENDPOINT_OPTIONS_H_
