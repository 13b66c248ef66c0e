#ifndef FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "job/reward_types.h"

namespace freshet {

// Edges on which a job can block. These are values of a metric label, so the set is fixed.
constexpr const char* kBlockingEdges[] = {"trainer",   "rollout", "reward",    "env",
                                          "prompts",   "store",   "datastore", "evaluation",
                                          "staleness", "paused",  "done"};

// What the workers of a job report at one moment, as far as the watchdog needs it.
struct WorkersHealth {
  // Live and connected workers of each role that the job has.
  int64_t trainers = 0;
  int64_t rollouts = 0;
  int64_t rewards = 0;
  int64_t envs = 0;
  std::string trainer_lost;   // "trainer-0 lost 3s ago"; "" if it is connected
  std::string trainer_waits;  // wait text of the trainer, "" if busy
  // One error per role with work that has not restarted yet.
  std::map<cluster::v1::Role, std::string> errors;
  std::string rollout_waits;   // wait text of the first waiting rollout, "" if all are busy
  std::string reward_waits;    // wait text of the first waiting reward worker, "" if all are busy
  std::string env_waits;       // of the rollout whose environment is silent longest, "" if none
  absl::Duration env_silence;  // how long it has been silent
};

// State of a job at one moment.
struct JobHealth : WorkersHealth {
  JobHealth() = default;
  explicit JobHealth(const WorkersHealth& workers) : WorkersHealth(workers) {}

  bool needs_env = false;
  bool paused = false;          // by the user
  bool trainer_starts = false;  // it loads the model, warms up or redoes steps
  bool all_steps = false;       // are committed; the trainer may still save them
  bool trainer_done = false;    // all steps are saved; an evaluation may be running
  std::string pool;
  std::string engine = "native";
  std::string store_error;  // error of the last call to the store, "" if it succeeded
  std::string store_full;   // the backend has no room for new samples; "" if it has
  std::optional<Explanation> explanation;  // the store's, if it works
  absl::Duration since_progress;
};

struct Blockage {
  bool stalled = false;  // no progress within the watchdog's patience
  std::string edge;      // one of kBlockingEdges
  std::string text;      // what the oldest unit of work waits for
};

// The edge that blocks the job's progress now. Missing workers take precedence over the store's
// explanation, because the store only sees that nothing arrives. No progress for `patience` is a
// stall. Pure.
Blockage FindBlockage(const JobHealth& health, absl::Duration patience);

// A number that changes whenever something has moved in the store.
int64_t ProgressMark(const StoreStats& stats);

// Detects a job in which every group dies, for example because a scorer always fails; it would
// otherwise generate forever. Also one in which every group dies that a component of the reward
// scores: it would train on the others only. Not thread-safe.
class DeathWatch {
 public:
  // This many deaths in a row, with no group scored in between, end the job. An intermittently
  // failing scorer does not reach it: a group dies only after reward.max_attempts failures of one
  // sample. So do this many because of one component whose failures in a row grow with them, while
  // few groups are scored: kMostScoredPerDeath for each.
  static constexpr int64_t kMostDeadInARow = kManyFailures;
  static constexpr int64_t kMostScoredPerDeath = 16;

  // Reason to end the job, or "". `newest`: the last kMostDeadInARow groups that died.
  std::string Check(const StoreStats& stats, const std::vector<DeadLetter>& newest);

 private:
  // The component because of which the newest groups died, or "".
  std::string FailingComponentOf(const std::vector<DeadLetter>& newest, int64_t scored) const;

  int64_t scored_seen_ = -1;
  int64_t dead_before_ = 0;  // when scored_seen_ was read
  int64_t dead_seen_ = -1;
  // Groups scored before each of the last kMostDeadInARow deaths since the first check.
  std::deque<int64_t> scored_at_death_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_WATCHDOG_H_
