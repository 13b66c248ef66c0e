#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_CONTROLLER_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_CONTROLLER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/data_roots.h"
#include "base/mutex.h"
#include "controller/autoscale/autoscaler.h"
#include "controller/cluster/leadership.h"
#include "controller/cluster/pool_scaler.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/driver/job_manager.h"
#include "controller/jobs/driver/job_ports.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/plan/retention.h"
#include "controller/jobs/record/job_registry.h"
#include "datastore/event_log.h"
#include "datastore/job_records.h"
#include "datastore/leader_lease.h"

namespace freshet {

// What a controller is made from. All of it outlives the controller.
struct ControllerPorts {
  JobRecordStore& records;
  EventLog& events;
  LeaderLease& lease;
  JobStores& stores;
  TrainerGateway& trainers;
  RewardGateway& rewards;
  ControllerObserver& observer;
  const Clock& clock;
  // Changes the number of workers; null: the controller itself does, by its record and by drains.
  PoolScaler* scaler = nullptr;
};

struct ControllerOptions {
  std::string candidate;  // unique to this run of the process
  ControllerTiming timing;
  RetentionOptions retention;
  PoolOptions pools;
  OwnLog own_log;   // of this process; may be empty
  DataRoots roots;  // of the files that jobs name
};

// What a controller has while it leads; a new one for each term.
struct ControllerTerm {
  ControllerTerm(const ControllerPorts& ports, const ControllerOptions& options, int64_t token,
                 std::unique_ptr<WorkerHub> workers);

  const int64_t fence;
  JobRegistry registry;
  std::unique_ptr<WorkerHub> hub;
  PoolScaler& scaler;  // changes the number of workers: the ports' one, or else the hub
  Reservations reservations;
  Autoscaler pools;
  JobManager manager;  // last: its drivers use all of the above
};

// One controller process: leads the cluster or stands by. Thread-safe.
class Controller {
 public:
  Controller(const ControllerPorts& ports, ControllerOptions options);
  // Stop().
  ~Controller();

  // Competes for the leadership from here on. `address`: where others reach this process.
  void Start(const std::string& address) { leadership_.Start(address); }
  // Hands the leadership over to a standby. Jobs go on. Idempotent.
  void Stop() { leadership_.Stop(); }

  // The term under way; null while this controller stands by, or when its lease has ended.
  std::shared_ptr<ControllerTerm> Active() const ABSL_LOCKS_EXCLUDED(mu_);
  // Who leads, as far as this controller knows.
  Leadership::View Leader() const { return leadership_.Get(); }
  // For reading only: any controller can.
  const JobRegistry& registry() const { return registry_; }
  const ControllerPorts& ports() const { return ports_; }
  const ControllerOptions& options() const { return options_; }

 private:
  absl::Status BeginTerm(int64_t token) ABSL_LOCKS_EXCLUDED(mu_);
  void EndTerm(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);

  const ControllerPorts ports_;
  const ControllerOptions options_;
  JobRegistry registry_;
  mutable Mutex mu_;
  std::shared_ptr<ControllerTerm> term_ ABSL_GUARDED_BY(mu_);
  Leadership leadership_;  // last: its threads call the methods above
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_CONTROLLER_H_
