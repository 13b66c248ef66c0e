#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_CONTROLLER_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_CONTROLLER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
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

// Dependencies of a controller; all of them must outlive it.
struct ControllerPorts {
  JobRecordStore& records;
  EventLog& events;
  LeaderLease& lease;
  JobStores& stores;
  TrainerGateway& trainers;
  ControllerObserver& observer;
  const Clock& clock;
  // Changes the number of workers. Null: the hub does, by its record and by drains.
  PoolScaler* scaler = nullptr;
};

struct ControllerOptions {
  std::string candidate;  // unique per process run
  ControllerTiming timing;
  RetentionOptions retention;
  PoolOptions pools;
  OwnLog own_log;   // log lines of this process; may be empty
  DataRoots roots;  // roots of the files that jobs name
};

// State of a controller while it leads; new for each term.
struct ControllerTerm {
  ControllerTerm(const ControllerPorts& ports, const ControllerOptions& options, int64_t token,
                 std::unique_ptr<WorkerHub> workers);

  const int64_t fence;
  JobRegistry registry;
  std::unique_ptr<WorkerHub> hub;
  PoolScaler& scaler;  // the ports' scaler, or else the hub
  Reservations reservations;
  Autoscaler pools;
  JobManager manager;  // last: its drivers use all of the above
};

// One controller process, leader or standby. Thread-safe.
class Controller {
 public:
  Controller(const ControllerPorts& ports, ControllerOptions options);
  // Calls Stop().
  ~Controller();

  // Starts to compete for leadership. `address`: where other processes reach this one.
  void Start(const std::string& address) { leadership_.Start(address); }
  // Hands leadership over to a standby. Jobs keep running. Idempotent.
  void Stop() { leadership_.Stop(); }

  // The current term; null on a standby or if the lease has expired.
  std::shared_ptr<ControllerTerm> Active() const ABSL_LOCKS_EXCLUDED(mu_);
  // The leader, as far as this controller knows.
  Leadership::View Leader() const { return leadership_.Get(); }
  // Read-only; usable on any controller.
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
