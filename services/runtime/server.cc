#include "services/runtime/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_initializer.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/digest.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/authorizer.h"
#include "services/runtime/channel.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/rpc_metrics.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {
namespace {

constexpr int kMaxMetadataBytes = 64 << 10;

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Collects the names of a server's services, for their health status.
class NameCollector final : public grpc::ServerBuilderPlugin {
 public:
  explicit NameCollector(std::vector<std::string>& names) : names_(names) {}
  std::string name() override { return "freshet_service_names"; }
  void InitServer(grpc::ServerInitializer*) override {}
  void Finish(grpc::ServerInitializer* server) override { names_ = *server->GetServiceList(); }
  void ChangeArguments(const std::string&, void*) override {}

 private:
  std::vector<std::string>& names_;
};

// Plugins of one server. The reflection library adds its own to every server of the process.
class Plugins final : public grpc::ServerBuilderOption {
 public:
  Plugins(std::vector<std::string>& names, bool reflection)
      : names_(names), reflection_(reflection) {
    // Links the library, which registers itself.
    static std::once_flag once;
    std::call_once(once, [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
  }
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [this](const auto& plugin) {
      return !reflection_ && plugin->name() == "proto_server_reflection";
    });
    plugins->push_back(std::make_unique<NameCollector>(names_));
  }

 private:
  std::vector<std::string>& names_;
  const bool reflection_;
};

// Accepts only calls with the token of a loopback cluster.
class ClusterTokenCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit ClusterTokenCheck(const std::string& token) : digest_(Sha256Hex("Bearer " + token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto header = metadata.find("authorization");
    // Compare digests to prevent timing attacks.
    if (header != metadata.end() &&
        Sha256Hex({header->second.data(), header->second.size()}) == digest_) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::UNAUTHENTICATED,
            "the call has not this cluster's token: give the file cluster.token of the cluster's "
            "folder with --token-file, a process with --cluster-token-file; commands and clients "
            "of the user who started the cluster find it where they use the address as "
            "`freshet cluster up` prints it"};
  }

 private:
  const std::string digest_;
};

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(
    const EndpointOptions& options, prometheus::Registry* registry) {
  if (!options.cluster_token_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(const std::string token,
                             ReadBearerToken(options.cluster_token_file, nullptr));
    auto local = grpc::experimental::LocalServerCredentials(LocalTypeOf(options.listen));
    local->SetAuthMetadataProcessor(std::make_shared<ClusterTokenCheck>(token));
    return local;
  }
  if (!options.tls.enabled()) return grpc::InsecureServerCredentials();
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials,
                           MakeServerCredentials(options.tls, options.require_client_cert));
  if (!options.authz_policy.empty()) {
    FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Authorizer> authorizer,
                             Authorizer::Create(options, registry));
    credentials->SetAuthMetadataProcessor(authorizer);
  }
  return credentials;
}

void SetLimits(grpc::ServerBuilder& builder, const EndpointOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Without this, two servers on one port would share its calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Allow pings at the interval of ChannelOptions, and detect vanished clients.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Millis(kMinPingInterval) / 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(absl::Seconds(10)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(absl::Seconds(5)));
  grpc::ResourceQuota quota("freshet");
  quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);
}

}  // namespace

struct Server::State {
  std::unique_ptr<grpc::Server> server;
  std::string address;
  Mutex mu;
  bool shut_down ABSL_GUARDED_BY(mu) = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const EndpointOptions& options, const std::vector<grpc::Service*>& services,
    std::shared_ptr<prometheus::Registry> registry) {
  FRESHET_RETURN_IF_ERROR(ValidateEndpoint(options));
  static std::once_flag health;  // process-wide setting for servers built afterwards
  std::call_once(health, [] { grpc::EnableDefaultHealthCheckService(true); });
  FRESHET_ASSIGN_OR_RETURN(auto credentials, Credentials(options, registry.get()));
  grpc::ServerBuilder builder;
  SetLimits(builder, options);
  std::shared_ptr<RpcMetrics> metrics;
  if (registry != nullptr) {
    metrics = std::make_shared<RpcMetrics>(registry);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(std::make_unique<RpcMetricsFactory>(metrics));
    builder.experimental().SetInterceptorCreators(std::move(factories));
  }
  int port = -1;
  builder.AddListeningPort(options.listen, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::string> names;
  builder.SetOption(std::make_unique<Plugins>(names, options.reflection));
  auto state = std::make_unique<State>();
  state->server = builder.BuildAndStart();
  if (state->server == nullptr || port < 0) {
    return FailedPrecondition("--listen ", options.listen,
                              ": cannot listen; is the address in use?");
  }
  for (const std::string& name : names) {
    if (metrics != nullptr) metrics->Announce(name);
  }
  const auto parsed = ParseHostPort(options.listen);
  state->address = parsed.has_value() ? JoinHostPort(parsed->host, port) : options.listen;
  std::unique_ptr<Server> server(new Server(std::move(state)));
  server->SetServing(false);
  for (const std::string& name : names) server->SetServing(name, false);
  return server;
}

Server::~Server() { Shutdown(absl::Now()); }

const std::string& Server::address() const { return state_->address; }

void Server::SetServing(bool serving) {
  if (auto* health = state_->server->GetHealthCheckService()) health->SetServingStatus(serving);
}

void Server::SetServing(const std::string& service, bool serving) {
  if (auto* health = state_->server->GetHealthCheckService()) {
    health->SetServingStatus(service, serving);
  }
}

void Server::Shutdown(absl::Time deadline) {
  {
    MutexLock lock(state_->mu);
    if (std::exchange(state_->shut_down, true)) return;
  }
  if (auto* health = state_->server->GetHealthCheckService()) health->Shutdown();
  state_->server->Shutdown(absl::ToChronoTime(std::max(deadline, absl::Now())));
  state_->server->Wait();
}

std::string AdvertisedAddress(const std::string& advertise, const std::string& bound) {
  if (ParseHostPort(advertise).has_value()) return advertise;
  const auto parsed = ParseHostPort(bound);
  if (!parsed.has_value()) return bound;
  if (!advertise.empty()) return JoinHostPort(advertise, parsed->port);
  const bool every_interface = parsed->host == "0.0.0.0" || parsed->host == "::";
  return every_interface ? JoinHostPort(HostName(), parsed->port) : bound;
}

}  // namespace freshet::runtime
