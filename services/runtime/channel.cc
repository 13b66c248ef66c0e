#include "services/runtime/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/runtime/peer_name.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {
namespace {

constexpr int kMaxMetadataBytes = 64 << 10;
constexpr uint64_t kMaxTokenBytes = 16 << 10;

// Sends the token of a loopback cluster with each call.
class ClusterToken final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit ClusterToken(std::string token) : header_("Bearer " + std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization", header_);
    return grpc::Status::OK;
  }

 private:
  const std::string header_;
};

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> LocalCredentials(
    const std::string& address, const std::string& token_file) {
  FRESHET_ASSIGN_OR_RETURN(std::string token, ReadBearerToken(token_file, nullptr));
  return grpc::CompositeChannelCredentials(
      grpc::experimental::LocalCredentials(LocalTypeOf(address)),
      grpc::experimental::MetadataCredentialsFromPlugin(
          std::make_unique<ClusterToken>(std::move(token)), GRPC_SECURITY_NONE));
}

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// gRPC service config that enables retries for the idempotent methods only.
std::string ServiceConfig(const std::vector<std::string>& idempotent) {
  nlohmann::json names = nlohmann::json::array();
  for (const std::string& method : idempotent) {
    const size_t slash = method.find('/');
    nlohmann::json name{{"service", method.substr(0, slash)}};
    if (slash != std::string::npos) name["method"] = method.substr(slash + 1);
    names.push_back(name);
  }
  const nlohmann::json policy{{"maxAttempts", 4},
                              {"initialBackoff", "0.1s"},
                              {"maxBackoff", "2s"},
                              {"backoffMultiplier", 2},
                              {"retryableStatusCodes", {"UNAVAILABLE"}}};
  // Retry throttling: at most about 10 % of calls are retried if a server keeps failing.
  const nlohmann::json config{{"methodConfig", {{{"name", names}, {"retryPolicy", policy}}}},
                              {"retryThrottling", {{"maxTokens", 10}, {"tokenRatio", 0.1}}}};
  return config.dump();
}

grpc::ChannelArguments Arguments(const ChannelOptions& options) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  args.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  args.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive_time));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive_timeout));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS, Millis(kMinPingInterval) / 2);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Millis(options.initial_reconnect_backoff));
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Millis(options.max_reconnect_backoff));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Millis(options.max_reconnect_backoff));
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, options.own_connection ? 1 : 0);
  // Ignore proxy environment variables for cluster traffic.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.idempotent_methods.empty()) {
    args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  } else {
    args.SetServiceConfigJSON(ServiceConfig(options.idempotent_methods));
  }
  if (options.all_addresses) args.SetLoadBalancingPolicyName("round_robin");
  if (!options.tls.server_name.empty()) args.SetSslTargetNameOverride(options.tls.server_name);
  return args;
}

absl::Status Check(const std::string& address, const ChannelOptions& options) {
  const auto parsed = ParseHostPort(address);
  if (!address.starts_with("unix:") && (!parsed.has_value() || parsed->port == 0)) {
    return InvalidArgument("address \"", address, "\" is not HOST:PORT");
  }
  if (options.keepalive_time < kMinPingInterval) {
    return InvalidArgument("keepalive_time ", absl::FormatDuration(options.keepalive_time),
                           " is below the minimum that servers accept, ",
                           absl::FormatDuration(kMinPingInterval));
  }
  if (!options.bearer_token.empty() && !options.tls.files.enabled()) {
    return InvalidArgument("address ", address,
                           ": a bearer token is not sent over plaintext; set up TLS (--ca), or "
                           "leave out --token-file and FRESHET_TOKEN");
  }
  if (!options.cluster_token_file.empty() && !IsLoopback(address)) {
    return InvalidArgument("address ", address,
                           ": the token of a loopback cluster is not sent to other machines");
  }
  return absl::OkStatus();
}

}  // namespace

ChannelOptions ChannelOptionsOf(const EndpointOptions& endpoint) {
  ChannelOptions options;
  options.tls.files = endpoint.tls;
  options.tls.member_name = endpoint.tls_peer_name;
  options.member_token_file = endpoint.cluster_token_file;
  options.max_message_bytes = endpoint.max_message_bytes;
  return options;
}

ChannelOptions ForMember(ChannelOptions options, std::string_view role) {
  if (!options.tls.member_name.empty()) {
    options.tls.server_name = PeerName(options.tls.member_name, role);
  }
  options.cluster_token_file = options.member_token_file;
  return options;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options) {
  FRESHET_RETURN_IF_ERROR(Check(address, options));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls.files.enabled()) {
    FRESHET_ASSIGN_OR_RETURN(credentials, MakeChannelCredentials(options.tls.files));
    if (!options.bearer_token.empty()) {
      credentials = grpc::CompositeChannelCredentials(
          credentials, grpc::AccessTokenCredentials(options.bearer_token));
    }
  } else if (!options.cluster_token_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(credentials, LocalCredentials(address, options.cluster_token_file));
  }
  return grpc::CreateCustomChannel(address, credentials, Arguments(options));
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
}

std::unique_ptr<grpc::ClientContext> CallWithin(absl::Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  SetDeadline(*context, timeout);
  return context;
}

grpc_local_connect_type LocalTypeOf(const std::string& address) {
  return address.starts_with("unix:") ? UDS : LOCAL_TCP;
}

absl::StatusOr<std::string> ReadBearerToken(const std::string& file, const char* variable) {
  std::string text;
  if (!file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(text, ReadFile(file, kMaxTokenBytes));
    text = text.substr(0, text.find_first_of("\r\n"));
    if (text.empty()) return InvalidArgument(file, ": has no token in its first line");
  } else if (const char* value = variable == nullptr ? nullptr : std::getenv(variable)) {
    text = value;
  }
  for (const char c : text) {
    if (c <= ' ' || c > '~') {
      return InvalidArgument(file.empty() ? variable : file.c_str(),
                             ": the token has a character that is not printable ASCII");
    }
  }
  return text;
}

}  // namespace freshet::runtime
