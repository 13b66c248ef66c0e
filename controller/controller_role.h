#ifndef FRESHET_CONTROLLER_CONTROLLER_ROLE_H_
#define FRESHET_CONTROLLER_CONTROLLER_ROLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "controller/api/controller_metrics.h"
#include "controller/api/controller_status.h"
#include "controller/api/external_scaler.h"
#include "controller/api/grpc_gateways.h"
#include "controller/api/job_service.h"
#include "controller/api/worker_service.h"
#include "controller/jobs/driver/controller.h"
#include "controller/kubernetes/kubernetes_cluster.h"
#include "controller/redis_job_stores.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_event_log.h"
#include "datastore/redis/redis_job_records.h"
#include "datastore/redis/redis_leader_lease.h"
#include "services/runtime/http_server.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/queue_metrics.h"
#include "services/runtime/serve.h"
#include "services/worker/channel_cache.h"

namespace freshet {

// Hooks through which test processes inject their own objects. Members may be empty.
struct ControllerHooks {
  RedisJobStores::Wrap wrap_store;
  // Wraps the record store, which outlives the wrapper.
  std::function<std::unique_ptr<JobRecordStore>(JobRecordStore&)> wrap_records;
};

struct ControllerRoleOptions {
  RedisOptions redis;
  runtime::ChannelOptions channel;  // to workers and to other controllers
  // Member name expected in workers' certificates, see WorkerServiceImpl. If "", a worker registers
  // under any name and role.
  std::string member_name;
  ControllerTiming timing;
  double time_scale = 1;  // applies to the autoscaling rules, whose periods are not in `timing`
  RetentionOptions retention;
  DataRoots roots;                                // roots of the files that jobs name
  std::map<std::string, PoolBounds> pool_bounds;  // of autoscaled pools
  std::optional<KubernetesOptions> kubernetes;    // set if workers run as pods
  std::string name;                               // "": controller-HOST-PID
  std::string status_listen;                      // loopback HOST:PORT of the status page; "": none
  std::shared_ptr<prometheus::Registry> registry;
  // Log lines of this process, for `freshet logs --role controller`. May be null; outlives the
  // role.
  runtime::LogRing* log = nullptr;
  ControllerHooks hooks;
};

// The role of a controller process: owns its Redis ports, its services and the Controller. Ready
// once the datastore has answered, as leader or as standby.
class ControllerRole final : public runtime::Role {
 public:
  // Opens no connection. INVALID_ARGUMENT for bad options.
  static absl::StatusOr<std::unique_ptr<ControllerRole>> Create(
      const ControllerRoleOptions& options);

  std::vector<grpc::Service*> Services() override;
  absl::Status Start(const runtime::RoleContext& context) override;
  absl::Status Drain(absl::Time deadline) override;
  void Stop() override;

  // Updates the metrics that are computed on scrape.
  void RefreshMetrics() ABSL_LOCKS_EXCLUDED(refresh_mu_);
  // HOST:PORT of the status page once the role has started; "" if disabled.
  std::string status_address() const { return page_ != nullptr ? page_->address() : ""; }

 private:
  ControllerRole(const ControllerRoleOptions& options, std::shared_ptr<RedisClient> client,
                 std::shared_ptr<RedisClient> lease_client, std::unique_ptr<RedisEventLog> events,
                 std::unique_ptr<KubernetesCluster> kubernetes);
  void OnDatastore(const absl::Status& status);
  // Checks the datastore every second, even if no job uses it.
  void WatchDatastore(std::stop_token stop);

  RedisJobRecords records_;
  const std::unique_ptr<JobRecordStore> wrapped_records_;  // may be null
  std::unique_ptr<RedisEventLog> events_;
  RedisLeaderLease lease_;
  RedisJobStores stores_;
  runtime::ChannelCache channels_;
  GrpcTrainerGateway trainers_;
  runtime::Readiness* readiness_ = nullptr;  // set before the first request
  ControllerMetrics metrics_;
  const std::unique_ptr<KubernetesCluster> kubernetes_;  // may be null
  Controller controller_;
  JobServiceImpl jobs_;
  WorkerServiceImpl workers_;
  const std::string status_listen_;
  ControllerStatus status_;
  ExternalScalerImpl scaler_;
  std::unique_ptr<runtime::HttpServer> page_;  // may be null
  metrics::QueueMetrics queues_;
  prometheus::Gauge& memory_used_;
  prometheus::Gauge& memory_bound_;
  prometheus::Counter& evicted_;
  metrics::Gauges& append_only_;
  Mutex refresh_mu_;
  // Set after the first reply of the datastore.
  std::optional<metrics::GaugeSeries> append_only_ok_ ABSL_GUARDED_BY(refresh_mu_);
  std::jthread watch_;  // last: uses the stores
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CONTROLLER_ROLE_H_
