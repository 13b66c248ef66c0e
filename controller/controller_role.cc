#include "controller/controller_role.h"

#include <unistd.h>

#include <optional>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "controller/status_page/status_routes.h"
#include "services/runtime/process_identity.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

constexpr absl::Duration kWatchPeriod = absl::Seconds(1);

uint64_t RandomBitsOfSystem() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string NameOf(const ControllerRoleOptions& options) {
  return options.name.empty() ? StrCat("controller-", runtime::HostName(), "-", getpid())
                              : options.name;
}

std::vector<job::v1::LogEntry> TakeLog(runtime::LogRing& ring, const std::string& name) {
  std::vector<job::v1::LogEntry> entries;
  // taken.lost is ignored: lost lines are older than what WorkerLogs keeps.
  runtime::LogRing::Taken taken = ring.Take();
  for (runtime::RingLine& line : taken.lines) {
    job::v1::LogEntry& entry = entries.emplace_back();
    *entry.mutable_time() = ToTimestamp(line.time);
    entry.set_role(RoleName(cluster::v1::ROLE_CONTROLLER));
    entry.set_worker(name);
    entry.set_level(LogSeverityName(line.severity));
    entry.set_text(ValidUtf8(std::move(line.text)));
  }
  return entries;
}

ControllerOptions MakeOptions(const ControllerRoleOptions& options) {
  ControllerOptions made;
  // Unique per process, because a restarted process may reuse the name.
  made.candidate = StrCat(NameOf(options), "#", runtime::RandomId().substr(0, 8));
  made.timing = options.timing;
  made.retention = options.retention;
  made.roots = options.roots;
  made.pools.bounds = options.pool_bounds;
  made.pools.rules = ScalingRules().Scaled(options.time_scale);
  made.pools.period = options.timing.heartbeat_interval;
  if (options.log != nullptr) {
    made.own_log = [log = options.log, name = NameOf(options)] { return TakeLog(*log, name); };
  }
  return made;
}

JobServiceOptions MakeServiceOptions() {
  JobServiceOptions service;
  service.random = RandomBitsOfSystem;
  return service;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControllerRole>> ControllerRole::Create(
    const ControllerRoleOptions& options) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<RedisClient> client, RedisClient::Create(options.redis));
  SetLogWorker(NameOf(options));
  // The lease has its own connections, so that no other call delays its renewal.
  RedisOptions lease_options = options.redis;
  lease_options.max_connections = 2;
  lease_options.connect_timeout = options.timing.leader_ttl;
  lease_options.command_timeout = options.timing.leader_ttl;
  lease_options.reconnect_backoff_max =
      std::min(lease_options.reconnect_backoff_max, options.timing.leader_ttl / 4);
  lease_options.reconnect_backoff_min =
      std::min(lease_options.reconnect_backoff_min, lease_options.reconnect_backoff_max);
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<RedisClient> lease_client,
                           RedisClient::Create(lease_options));
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisEventLog> events, RedisEventLog::Create(client));
  std::unique_ptr<KubernetesCluster> kubernetes;
  if (options.kubernetes.has_value()) {
    FRESHET_ASSIGN_OR_RETURN(kubernetes,
                             KubernetesCluster::Create(*options.kubernetes, SystemClock::Get()));
  }
  return std::unique_ptr<ControllerRole>(
      new ControllerRole(options, std::move(client), std::move(lease_client), std::move(events),
                         std::move(kubernetes)));
}

ControllerRole::ControllerRole(const ControllerRoleOptions& options,
                               std::shared_ptr<RedisClient> client,
                               std::shared_ptr<RedisClient> lease_client,
                               std::unique_ptr<RedisEventLog> events,
                               std::unique_ptr<KubernetesCluster> kubernetes)
    : records_(client),
      wrapped_records_(options.hooks.wrap_records ? options.hooks.wrap_records(records_) : nullptr),
      events_(std::move(events)),
      lease_(std::move(lease_client)),
      stores_(client, options.hooks.wrap_store),
      channels_(options.channel),
      trainers_(channels_),
      metrics_(options.registry, [this](const absl::Status& status) { OnDatastore(status); }),
      kubernetes_(std::move(kubernetes)),
      controller_({wrapped_records_ != nullptr ? *wrapped_records_ : records_, *events_, lease_,
                   stores_, trainers_, metrics_, SystemClock::Get(),
                   kubernetes_ != nullptr ? &kubernetes_->scaler() : nullptr},
                  MakeOptions(options)),
      jobs_(controller_, channels_, MakeServiceOptions()),
      workers_(controller_, options.member_name),
      status_listen_(options.status_listen),
      status_(controller_, channels_),
      scaler_(controller_, status_),
      queues_(*options.registry),
      memory_used_(metrics::GaugeFamily(*options.registry, "freshet_datastore_memory_used_bytes",
                                        "Memory that the datastore uses.")
                       .Add({})),
      memory_bound_(metrics::GaugeFamily(*options.registry, "freshet_datastore_memory_bound_bytes",
                                         "Memory that the datastore may use; 0: no limit.")
                        .Add({})),
      evicted_(
          metrics::CounterFamily(
              *options.registry, "freshet_datastore_evicted_keys_total",
              "Keys that the datastore has evicted for lack of memory; each may be a lost sample.")
              .Add({})),
      append_only_(metrics::GaugeFamily(*options.registry, "freshet_datastore_append_only_ok",
                                        "1 while the datastore's append-only file is enabled and "
                                        "its last write and rewrite succeeded, else 0.")) {
  queues_.Watch("job_calls", JobServiceImpl::kMaxWaiting,
                [this] { return static_cast<int64_t>(jobs_.queued_calls()); });
  queues_.Watch("job_streams", JobServiceOptions().max_streams,
                [this] { return int64_t{jobs_.open_streams()}; });
  queues_.Watch("worker_calls", WorkerServiceImpl::kMaxWaiting,
                [this] { return static_cast<int64_t>(workers_.queued_calls()); });
  queues_.Watch("scaler_calls", ExternalScalerImpl::kMaxWaiting,
                [this] { return static_cast<int64_t>(scaler_.queued_calls()); });
  queues_.Watch("scaler_streams", ExternalScalerImpl::kMaxStreams,
                [this] { return int64_t{scaler_.open_streams()}; });
}

void ControllerRole::RefreshMetrics() {
  queues_.Refresh();
  const std::optional<RedisReading> reading = stores_.reading();
  if (!reading.has_value()) return;
  MutexLock lock(refresh_mu_);
  memory_used_.Set(static_cast<double>(reading->used_bytes));
  memory_bound_.Set(static_cast<double>(reading->bound_bytes));
  metrics::RaiseTo(evicted_, static_cast<double>(reading->evicted));
  if (!append_only_ok_.has_value()) append_only_ok_.emplace(append_only_, metrics::Labels());
  (*append_only_ok_)->Set(reading->append_only_ok ? 1 : 0);
}

void ControllerRole::WatchDatastore(std::stop_token stop) {
  Notification stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.Notify(); });
  do {
    stores_.CheckSpace().IgnoreError();
  } while (!stopped.WaitFor(kWatchPeriod));
}

void ControllerRole::OnDatastore(const absl::Status& status) {
  if (readiness_ != nullptr) readiness_->Set("datastore", status.ok(), Message(status));
}

std::vector<grpc::Service*> ControllerRole::Services() { return {&jobs_, &workers_, &scaler_}; }

absl::Status ControllerRole::Start(const runtime::RoleContext& context) {
  readiness_ = context.readiness;
  readiness_->Set("datastore", false, "has not answered yet");
  if (!status_listen_.empty()) {
    FRESHET_ASSIGN_OR_RETURN(page_, ServeStatusPage(status_listen_, status_));
    FRESHET_LOG(Info) << "event=status_page url=http://" << page_->address() << "/";
  }
  controller_.Start(context.grpc_address);
  if (kubernetes_ != nullptr) {
    kubernetes_->Start([this]() -> std::optional<std::vector<Member>> {
      const auto term = controller_.Active();
      if (term == nullptr) return std::nullopt;
      return term->hub->Workers();
    });
  }
  watch_ = std::jthread([this](std::stop_token stop) { WatchDatastore(stop); });
  return absl::OkStatus();
}

absl::Status ControllerRole::Drain(absl::Time) {
  // A standby takes over at once; workers keep running.
  controller_.Stop();
  return absl::OkStatus();
}

void ControllerRole::Stop() {
  watch_ = {};
  page_.reset();
  if (kubernetes_ != nullptr) kubernetes_->Stop();
  controller_.Stop();
  jobs_.Stop();
  scaler_.Stop();
  workers_.Stop();
}

}  // namespace freshet
