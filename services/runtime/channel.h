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

// A client's TLS identity and trust. Without a CA the channel is plaintext.
struct ClientTls {
  TlsFiles files;           // `cert` and `key` only for mutual TLS
  std::string server_name;  // expected name in the server's certificate; "": from the address
  // Expected name of cluster members, with "{role}", see peer_name.h. "": server_name applies.
  std::string member_name;
};

struct ChannelOptions {
  ClientTls tls;
  std::string bearer_token;  // sent with every call; requires TLS; never logged
  // EndpointOptions::cluster_token_file of the server: its token is sent with every call in
  // plaintext, so it is refused for non-loopback addresses. Set by ForMember; "": none.
  std::string cluster_token_file;
  std::string member_token_file;  // for ForMember
  int64_t max_message_bytes = 16 << 20;
  // Must exceed the server's minimum, kMinPingInterval.
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
  // Methods that may be retried on UNAVAILABLE: "pkg.Service/Method", or "pkg.Service" for all of
  // its methods. At most 4 attempts within the call's deadline.
  std::vector<std::string> idempotent_methods;
  // Backoff between connection attempts.
  absl::Duration initial_reconnect_backoff = absl::Milliseconds(100);
  absl::Duration max_reconnect_backoff = absl::Seconds(2);
  // By default, channels to the same address share a connection.
  bool own_connection = false;
  // Connects to every address that the name has, and gives each call to the next one that answers.
  // By default all calls go to the first.
  bool all_addresses = false;
};

// Minimum ping interval of clients; the server closes the connection if they ping more often.
inline constexpr absl::Duration kMinPingInterval = absl::Milliseconds(500);

// Client options with a server's identity (the same files).
ChannelOptions ChannelOptionsOf(const EndpointOptions& endpoint);

// The same for a channel to a member with that role ("trainer"), at any address.
ChannelOptions ForMember(ChannelOptions options, std::string_view role);

// A lazily connecting channel to `address` (HOST:PORT, or unix:PATH). INVALID_ARGUMENT: a bad
// address, a token over plaintext, a cluster token to another machine, keepalive below the minimum;
// NOT_FOUND: an unreadable file.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options);

// Sets the call's deadline to `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

// A context for one call with that deadline.
std::unique_ptr<grpc::ClientContext> CallWithin(absl::Duration timeout);

// Type of a loopback address for gRPC's local credentials.
grpc_local_connect_type LocalTypeOf(const std::string& address);

// A bearer token: the first line of `file`, else the value of environment variable `variable`, else
// "". NOT_FOUND or INVALID_ARGUMENT if `file` is given but has no token.
absl::StatusOr<std::string> ReadBearerToken(const std::string& file, const char* variable);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CHANNEL_H_
