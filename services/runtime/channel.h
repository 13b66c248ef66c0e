#ifndef FRESHET_SERVICES_RUNTIME_CHANNEL_H_
#define FRESHET_SERVICES_RUNTIME_CHANNEL_H_

#include <grpc/grpc_security_constants.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {

// How a client proves who it is and whom it believes. Without a CA the channel is plaintext.
struct ClientTls {
  TlsFiles files;           // `cert` and `key` only for mutual TLS
  std::string server_name;  // expected name in the server's certificate; "": that of the address
  // Expected name of members of the cluster, with "{role}", see peer_name.h; "": server_name
  // counts.
  std::string member_name;
};

struct ChannelOptions {
  ClientTls tls;
  std::string bearer_token;  // sent with every call; refused without TLS; never logged
  // EndpointOptions::cluster_token_file of the server: its token is sent with every call, in
  // plaintext; refused for an address that is not loopback. ForMember sets it; "": none.
  std::string cluster_token_file;
  std::string member_token_file;  // for ForMember
  int64_t max_message_bytes = 16 << 20;
  // The server's minimum (kMinPingInterval) is below this.
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
  // Methods that may be retried on UNAVAILABLE: "pkg.Service/Method", or "pkg.Service" for all of
  // its methods. At most 4 attempts within the call's deadline.
  std::vector<std::string> idempotent_methods;
  // Waits between attempts to connect.
  absl::Duration initial_reconnect_backoff = absl::Milliseconds(100);
  absl::Duration max_reconnect_backoff = absl::Seconds(2);
  // Several channels to one address share a connection unless this is set.
  bool own_connection = false;
};

// Clients may ping as often as this; more often is answered by closing the connection.
inline constexpr absl::Duration kMinPingInterval = absl::Milliseconds(500);

// The identity of a server used as a client: the same files.
ChannelOptions ChannelOptionsOf(const EndpointOptions& endpoint);

// The same for a channel to a member of that role ("trainer"), at whatever address.
ChannelOptions ForMember(ChannelOptions options, std::string_view role);

// A lazily connecting channel to `address` (HOST:PORT, or unix:PATH).
// Returns INVALID_ARGUMENT: a bad address, a token over plaintext, a cluster's token to another
// machine, keepalive below the minimum; NOT_FOUND: a file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options);

// The call ends with DEADLINE_EXCEEDED after `timeout`.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

// A context for one call with that deadline.
std::unique_ptr<grpc::ClientContext> CallWithin(absl::Duration timeout);

// Type of a loopback address for gRPC's local credentials.
grpc_local_connect_type LocalTypeOf(const std::string& address);

// A bearer token: the first line of `file`, else the value of the environment variable `variable`;
// "" when neither is given. NOT_FOUND or INVALID_ARGUMENT when `file` is given but has no token.
absl::StatusOr<std::string> ReadBearerToken(const std::string& file, const char* variable);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CHANNEL_H_
