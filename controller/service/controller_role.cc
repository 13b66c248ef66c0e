#include "controller/service/controller_role.h"

#include <unistd.h>

#include <random>
#include <utility>

#include "controller/jobs/job_record.h"
#include "controller/jobs/proto_time.h"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/utf8.h"

namespace freshet {
namespace {

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
  // What was overwritten meanwhile is older than what a log keeps.
  runtime::LogRing::Taken taken = ring.Take();
  for (runtime::RingLine& line : taken.lines) {
    job::v1::LogEntry& entry = entries.emplace_back();
    *entry.mutable_time() = ToTimestamp(line.time);
    entry.set_role(RoleName(cluster::v1::ROLE_CONTROLLER));
    entry.set_worker(name);
    entry.set_level(LogSeverityName(line.severity));
    entry.set_text(runtime::ValidUtf8(std::move(line.text)));
  }
  return entries;
}

ControllerOptions MakeOptions(const ControllerRoleOptions& options) {
  ControllerOptions made;
  // Every process is another candidate, also under the name of one that died.
  made.candidate = StrCat(NameOf(options), "#", runtime::RandomId().substr(0, 8));
  made.timing = options.timing;
  made.retention = options.retention;
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
  // The lease has connections of its own: no other call may hold up its renewal.
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
  return std::unique_ptr<ControllerRole>(
      new ControllerRole(options, std::move(client), std::move(lease_client), std::move(events)));
}

ControllerRole::ControllerRole(const ControllerRoleOptions& options,
                               std::shared_ptr<RedisClient> client,
                               std::shared_ptr<RedisClient> lease_client,
                               std::unique_ptr<RedisEventLog> events)
    : records_(client),
      wrapped_records_(options.hooks.wrap_records ? options.hooks.wrap_records(records_) : nullptr),
      events_(std::move(events)),
      lease_(std::move(lease_client)),
      stores_(client, options.hooks.wrap_store),
      channels_(options.channel),
      trainers_(channels_),
      rewards_(channels_),
      metrics_(options.registry, [this](const absl::Status& status) { OnDatastore(status); }),
      controller_({wrapped_records_ != nullptr ? *wrapped_records_ : records_, *events_, lease_,
                   stores_, trainers_, rewards_, metrics_, SystemClock::Get()},
                  MakeOptions(options)),
      jobs_(controller_, channels_, MakeServiceOptions()),
      workers_(controller_),
      queues_(*options.registry),
      memory_used_(metrics::GaugeFamily(*options.registry, "freshet_datastore_memory_used_bytes",
                                        "Memory that the datastore uses, seen while a job runs.")
                       .Add({})),
      memory_bound_(metrics::GaugeFamily(*options.registry, "freshet_datastore_memory_bound_bytes",
                                         "Memory that the datastore may use; 0: no limit.")
                        .Add({})) {
  queues_.Watch("job_calls", JobServiceImpl::kMaxWaiting,
                [this] { return static_cast<int64_t>(jobs_.queued_calls()); });
  queues_.Watch("job_streams", JobServiceOptions().max_streams,
                [this] { return int64_t{jobs_.open_streams()}; });
  queues_.Watch("worker_calls", WorkerServiceImpl::kMaxWaiting,
                [this] { return static_cast<int64_t>(workers_.queued_calls()); });
}

void ControllerRole::RefreshMetrics() {
  queues_.Refresh();
  const RedisMemory memory = stores_.memory();
  memory_used_.Set(static_cast<double>(memory.used_bytes));
  memory_bound_.Set(static_cast<double>(memory.bound_bytes));
}

void ControllerRole::OnDatastore(const absl::Status& status) {
  if (readiness_ != nullptr) readiness_->Set("datastore", status.ok(), Message(status));
}

std::vector<grpc::Service*> ControllerRole::Services() { return {&jobs_, &workers_}; }

absl::Status ControllerRole::Start(const runtime::RoleContext& context) {
  readiness_ = context.readiness;
  readiness_->Set("datastore", false, "has not answered yet");
  controller_.Start(context.grpc_address);
  return absl::OkStatus();
}

absl::Status ControllerRole::Drain(absl::Time) {
  // Whoever stands by takes over at once; workers go on meanwhile.
  controller_.Stop();
  return absl::OkStatus();
}

void ControllerRole::Stop() {
  controller_.Stop();
  jobs_.Stop();
  workers_.Stop();
}

}  // namespace freshet
