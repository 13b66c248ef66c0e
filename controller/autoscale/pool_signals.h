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

// What a job asks of its pool, as its driver sees it.
struct JobDemand {
  std::string job;
  std::string pool;
  JobPhase phase = JobPhase::kNone;
  double trainer_wait = 0;
  int64_t version = 0;
  int64_t admissible = 0;
  int64_t outstanding = 0;
  absl::Duration queue_age;
  absl::Time measured;  // of all this
};
// A demand that is older says nothing any more.
inline constexpr absl::Duration kDemandHolds = absl::Seconds(10);

// What is known of a job that has left the queue.
struct JobSituation {
  bool paused = false;
  int64_t trainers = 0;  // that have it and are there
  bool trainer_running = false;
  bool trainer_done = false;
  double trainer_busy = 0;            // share of time
  bool opens = false;                 // the store is not open yet
  const StoreStats* stats = nullptr;  // null: it does not answer
  // Since when the oldest complete group is there; infinite future without one.
  absl::Time oldest_ready = absl::InfiniteFuture();
};

// The phase and stats of a job; its name and pool are left out. Pure.
JobDemand MeasureDemand(const StoreOptions& store, const JobSituation& situation, absl::Time now);

// The signals of one pool: its engines among `workers`, its job (null: none), and whether one waits
// for it in the queue. Pure.
PoolSignals MeasurePool(const std::string& pool, const std::vector<Member>& workers,
                        const JobDemand* job, bool queued, absl::Time now);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_SIGNALS_H_
