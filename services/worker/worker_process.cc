#include "services/worker/worker_process.h"

#include <cstdio>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/serve.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

absl::StatusOr<RedisDatastore> OpenDatastore(const runtime::DatastoreFlags& flags,
                                             double time_scale) {
  FRESHET_ASSIGN_OR_RETURN(RedisOptions options, runtime::MakeRedisOptions(flags, time_scale));
  return OpenRedisDatastore(std::move(options));
}

}  // namespace

absl::StatusOr<StoreOpener> MakeStoreOpener(const runtime::DatastoreFlags& flags,
                                            double time_scale) {
  FRESHET_ASSIGN_OR_RETURN(RedisDatastore datastore, OpenDatastore(flags, time_scale));
  return std::move(datastore.open_store);
}

std::unique_ptr<WorkerProcess> WorkerProcess::Create(const runtime::WorkerFlags& flags,
                                                     cluster::v1::Role role,
                                                     StoreWrapper wrap_store) {
  absl::StatusOr<runtime::WorkerAgentOptions> agent =
      runtime::MakeAgentOptions(flags, role, Version());
  absl::StatusOr<RedisDatastore> datastore = agent.ok()
                                                 ? OpenDatastore(flags.datastore, flags.time_scale)
                                                 : absl::StatusOr<RedisDatastore>(agent.status());
  if (!datastore.ok()) {
    std::fprintf(stderr, "freshet-%s: %s\n", RoleName(role), Message(datastore.status()).c_str());
    return nullptr;
  }
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(
      flags, role, *std::move(agent), *std::move(datastore), std::move(wrap_store)));
}

WorkerProcess::WorkerProcess(const runtime::WorkerFlags& flags, cluster::v1::Role role,
                             runtime::WorkerAgentOptions agent, RedisDatastore datastore,
                             StoreWrapper wrap_store)
    : flags_(flags),
      role_(role),
      agent_(std::move(agent)),
      datastore_(std::move(datastore)),
      wrap_store_(std::move(wrap_store)),
      channels_(runtime::ChannelOptionsOf(flags)),
      registry_(std::make_shared<prometheus::Registry>()),
      queues_(*registry_) {
  runtime::ShipLog(log_);
}

StoreOpener WorkerProcess::open_store() {
  return [this](const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<TrajectoryStore> store, datastore_.open_store(job));
    if (wrap_store_) store = wrap_store_(std::move(store));
    return store;
  };
}

std::function<std::shared_ptr<grpc::Channel>(const std::string&)> WorkerProcess::Members(
    cluster::v1::Role role) {
  return [this, role](const std::string& address) {
    return channels_.Get(address, role).value_or(nullptr);
  };
}

int WorkerProcess::Serve(bool exclusive, runtime::JobWorkFactory factory,
                         std::vector<grpc::Service*> services, const std::function<void()>& refresh,
                         const Extras& extras) {
  runtime::WorkerRoleOptions options;
  options.agent = agent_;
  options.exclusive = exclusive;
  options.drain_calls = extras.drain_calls;
  runtime::WorkerRole role(std::move(options), std::move(factory), std::move(services), &log_);
  runtime::ServeOptions serve;
  serve.role = RoleName(role_);
  serve.version = agent_.identity.version();
  serve.endpoint = flags_.endpoint;
  serve.registry = registry_;
  serve.ready_fields = extras.ready_fields;
  serve.before_scrape = [this, &refresh] {
    refresh();
    queues_.Refresh();
  };
  return runtime::Serve(role, serve);
}

}  // namespace freshet
