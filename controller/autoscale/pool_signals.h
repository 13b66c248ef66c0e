#ifndef FRESHET_CONTROLLER_AUTOSCALE_POOL_SIGNALS_H_
#define FRESHET_CONTROLLER_AUTOSCALE_POOL_SIGNALS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/autoscale/pool_decision.h"
#include "controller/cluster/membership.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// What a job needs from its pool, as seen by its driver.
struct JobDemand {
  std::string job;
  std::string pool;
  JobPhase phase = JobPhase::kNone;
  double trainer_wait = 0;
  int64_t version = 0;
  int64_t admissible = 0;
  int64_t outstanding = 0;
  absl::Duration queue_age;
  absl::Time measured;  // time of measurement
};
// Older demands are ignored.
inline constexpr absl::Duration kDemandHolds = absl::Seconds(10);

// State of a job that has left the queue.
struct JobSituation {
  bool paused = false;
  int64_t trainers = 0;  // assigned and connected
  bool trainer_running = false;
  bool trainer_done = false;
  double trainer_busy = 0;            // share of time
  bool opens = false;                 // the store is not open yet
  const StoreStats* stats = nullptr;  // null: the store does not answer
  // When the oldest complete group became ready; infinite future if none.
  absl::Time oldest_ready = absl::InfiniteFuture();
};

// Phase and stats of a job; name and pool are left empty. Pure.
JobDemand MeasureDemand(const StoreOptions& store, const JobSituation& situation, absl::Time now);

// The signals of one pool: its engines among `workers`, its job (null if none), and whether a
// queued job waits for it. Pure.
PoolSignals MeasurePool(const std::string& pool, const std::vector<Member>& workers,
                        const JobDemand* job, bool queued, absl::Time now);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_SIGNALS_H_
