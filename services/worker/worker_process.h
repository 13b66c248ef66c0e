#ifndef FRESHET_SERVICES_WORKER_WORKER_PROCESS_H_
#define FRESHET_SERVICES_WORKER_WORKER_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datastore/redis/redis_datastore.h"
#include "datastore/trajectory_store.h"
#include "prometheus/registry.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/queue_metrics.h"
#include "services/worker/channel_cache.h"
#include "services/worker/worker_flags.h"
#include "services/worker/worker_role.h"

namespace freshet {

// Wraps the trajectory stores of a process, for tests. May be empty.
using StoreWrapper =
    std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)>;

// Opens the jobs' stores, for a process that runs no jobs itself. Opens no connection. Errors of
// MakeRedisOptions.
absl::StatusOr<StoreOpener> MakeStoreOpener(const runtime::DatastoreFlags& flags,
                                            double time_scale);

// What the main() of every worker that runs jobs needs: the datastore, channels to other members, a
// metrics registry, and a log that is sent to the controller. Must outlive the works of the
// process.
class WorkerProcess {
 public:
  // What a process does besides its jobs; all may be empty.
  struct Extras {
    std::function<void(absl::Time deadline)> drain_calls;  // see WorkerRoleOptions
    std::function<std::string()> ready_fields;             // see ServeOptions
  };

  // Opens no connection. On error prints "PROGRAM: message", naming the flag, and returns null; the
  // caller exits with 2.
  static std::unique_ptr<WorkerProcess> Create(const runtime::WorkerFlags& flags,
                                               cluster::v1::Role role, StoreWrapper wrap_store);

  StoreOpener open_store();
  EventLog& events() { return *datastore_.events; }
  runtime::ChannelCache& channels() { return channels_; }
  // Returns channels to members with `role`; null if no channel can be made for an address.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> Members(
      cluster::v1::Role role);
  prometheus::Registry& registry() { return *registry_; }
  metrics::QueueMetrics& queues() { return queues_; }
  // Unique per start of the process.
  const std::string& incarnation() const { return agent_.identity.incarnation(); }

  // Serves until the process is told to stop. An `exclusive` worker runs one job at a time.
  // `refresh` is called before each metrics scrape. Returns the exit code.
  int Serve(bool exclusive, runtime::JobWorkFactory factory, std::vector<grpc::Service*> services,
            const std::function<void()>& refresh, const Extras& extras = {});

 private:
  WorkerProcess(const runtime::WorkerFlags& flags, cluster::v1::Role role,
                runtime::WorkerAgentOptions agent, RedisDatastore datastore,
                StoreWrapper wrap_store);

  const runtime::WorkerFlags flags_;
  const cluster::v1::Role role_;
  const runtime::WorkerAgentOptions agent_;
  const RedisDatastore datastore_;
  const StoreWrapper wrap_store_;
  runtime::LogRing log_;
  runtime::ChannelCache channels_;
  const std::shared_ptr<prometheus::Registry> registry_;
  metrics::QueueMetrics queues_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_WORKER_WORKER_PROCESS_H_
