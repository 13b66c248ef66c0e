#ifndef FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Edges on which a job can block: values of a metric's label, so the set is fixed.
constexpr const char* kBlockingEdges[] = {"trainer",   "rollout",     "reward",    "env",
                                          "prompts",   "store",       "datastore", "evaluation",
                                          "staleness", "ref_logprob", "paused",    "done"};

// What is known of a job at one moment.
struct JobHealth {
  // Workers of a role that the job has and that are alive.
  int64_t trainers = 0;
  int64_t rollouts = 0;
  int64_t rewards = 0;
  int64_t envs = 0;
  bool needs_env = false;
  bool paused = false;          // on request
  bool trainer_starts = false;  // it opens the model, warms up, or redoes steps
  bool trainer_done = false;    // all steps are done; an evaluation may be under way
  std::string pool;
  std::string trainer_lost;   // "trainer-0 lost 3s ago"; "" when it is there
  std::string trainer_waits;  // what the trainer's status says, "" when it is busy
  // Errors of work that has not restarted yet, "" without.
  std::string rollout_errors, reward_errors, env_errors;
  std::string rollout_waits;   // what a rollout's status says, "" when all are busy
  std::string reward_waits;    // what a reward worker's status says, "" when all are busy
  std::string env_waits;       // what a rollout says whose environment is silent, "" without
  absl::Duration env_silence;  // how long it is
  std::string store_error;     // of the last call to the store, "" when it works
  std::string store_full;      // the backend has no room for new samples; "" when it has
  std::string feeder_error;    // why prompts cannot be fed, "" when they are
  std::optional<Explanation> explanation;  // the store's, while it works
  absl::Duration since_progress;
};

struct Blockage {
  bool stalled = false;  // no progress for as long as the watchdog allows
  std::string edge;      // one of kBlockingEdges
  std::string text;      // what the oldest unit of work waits for
};

// Names the edge that a job's progress depends on now. Missing workers come before what the store
// says, since the store only sees that nothing comes. `patience`: progress that stays away for so
// long is a stall. Pure.
Blockage FindBlockage(const JobHealth& health, absl::Duration patience);

// Any sign of progress: a number that differs whenever something has moved in the store.
int64_t ProgressMark(const StoreStats& stats);

// Notices a job that cannot go on because every group dies, as with a scorer that always fails:
// without it the job would generate for ever. Confined to one thread.
class DeathWatch {
 public:
  // So many groups that died with none scored in between end the job. A scorer that fails now and
  // then never gets there: each group takes reward.max_attempts failures of one sample to die.
  static constexpr int64_t kMostDeadInARow = 16;

  // The reason for ending the job, or "".
  std::string Check(const StoreStats& stats);

 private:
  int64_t scored_seen_ = -1;
  int64_t dead_before_ = 0;  // when scored_seen_ was read
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_
