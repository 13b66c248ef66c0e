#ifndef FRESHET_CONTROLLER_JOBS_PLAN_SCHEDULER_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_SCHEDULER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace freshet {

struct QueuedJob {
  std::string id;
  int32_t priority = 0;  // larger first
  absl::Time created;    // then older first
  std::string pool;      // rollout pool that it wants
  std::string engine;    // rollout.engine
  // Trainer that holds its checkpoints; "" for a job that never ran.
  std::string trainer;
};

struct TrainerSlot {
  std::string name;
  bool ready = false;  // alive and not draining
  std::string job;     // its current job; "" if free
};

struct PoolSlot {
  std::string name;
  std::map<std::string, int64_t> ready;  // rollouts alive and not draining, by engine
  std::string job;                       // its current job; "" if free
};

struct ScheduleInput {
  std::vector<QueuedJob> queue;
  std::vector<TrainerSlot> trainers;
  std::vector<PoolSlot> pools;  // those with a worker or a job
};

struct JobStart {
  std::string job;
  std::string trainer;
  std::string pool;
};
struct JobWait {
  std::string job;
  std::string reason;
};
struct Schedule {
  std::vector<JobStart> starts;
  std::vector<JobWait> waits;  // all other queued jobs
};

// Which queued jobs start now. A trainer and the rollouts of a pool serve one job at a time;
// rollouts with another engine than the job's stay idle. Reward and environment workers serve all
// jobs, so no job waits for them here. Jobs are taken by priority, then age. A job that cannot
// start does not block later jobs that need other workers, but trainers and pools that the first
// waiting job could use are kept for it. A job that ran before goes back to the trainer that has
// its checkpoints. Pure. O((jobs + workers) * jobs).
Schedule ScheduleJobs(const ScheduleInput& input);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_SCHEDULER_H_
