#ifndef FRESHET_CONTROLLER_SERVICE_CONTROLLER_ROLE_H_
#define FRESHET_CONTROLLER_SERVICE_CONTROLLER_ROLE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/jobs/controller.h"
#include "controller/service/controller_metrics.h"
#include "controller/service/grpc_gateways.h"
#include "controller/service/job_service.h"
#include "controller/service/redis_job_stores.h"
#include "controller/service/worker_service.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_event_log.h"
#include "datastore/redis/redis_job_records.h"
#include "datastore/redis/redis_leader_lease.h"
#include "services/metrics/queue_metrics.h"
#include "services/runtime/channel_cache.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/serve.h"

namespace freshet {

// Where a process for tests puts something of its own in. Members may be empty.
struct ControllerHooks {
  RedisJobStores::Wrap wrap_store;
  // In front of the records, which outlive it.
  std::function<std::unique_ptr<JobRecordStore>(JobRecordStore&)> wrap_records;
};

struct ControllerRoleOptions {
  RedisOptions redis;
  runtime::ChannelOptions channel;  // to workers and other controllers
  ControllerTiming timing;
  RetentionOptions retention;
  std::string name;  // "": controller-HOST-PID
  std::shared_ptr<prometheus::Registry> registry;
  // Where the process's log lines go, for `freshet logs --role controller`; may be null. Outlives
  // the role.
  runtime::LogRing* log = nullptr;
  ControllerHooks hooks;
};

// The process of a controller: its ports in Redis, its services, and its place in the life of the
// process. Ready once the datastore has answered, whether it leads or stands by.
class ControllerRole final : public runtime::Role {
 public:
  // Opens no connection. INVALID_ARGUMENT for bad options.
  static absl::StatusOr<std::unique_ptr<ControllerRole>> Create(
      const ControllerRoleOptions& options);

  std::vector<grpc::Service*> Services() override;
  absl::Status Start(const runtime::RoleContext& context) override;
  absl::Status Drain(absl::Time deadline) override;
  void Stop() override;

  // Brings metrics up to date that are read when they are asked for.
  void RefreshMetrics();

 private:
  ControllerRole(const ControllerRoleOptions& options, std::shared_ptr<RedisClient> client,
                 std::shared_ptr<RedisClient> lease_client, std::unique_ptr<RedisEventLog> events);
  void OnDatastore(const absl::Status& status);

  RedisJobRecords records_;
  const std::unique_ptr<JobRecordStore> wrapped_records_;  // null: none
  std::unique_ptr<RedisEventLog> events_;
  RedisLeaderLease lease_;
  RedisJobStores stores_;
  runtime::ChannelCache channels_;
  GrpcTrainerGateway trainers_;
  GrpcRewardGateway rewards_;
  runtime::Readiness* readiness_ = nullptr;  // set before anything is asked
  ControllerMetrics metrics_;
  Controller controller_;
  JobServiceImpl jobs_;
  WorkerServiceImpl workers_;
  metrics::QueueMetrics queues_;
  prometheus::Gauge& memory_used_;
  prometheus::Gauge& memory_bound_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_SERVICE_CONTROLLER_ROLE_H_
