#ifndef FRESHET_LOCAL_DEAD_GROUP_GUARD_H_
#define FRESHET_LOCAL_DEAD_GROUP_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Detects a job in which every group dies, for example because a scorer always fails; it would
// otherwise generate forever. Logs each death with its reason. Not thread-safe.
class DeadGroupGuard {
 public:
  // This many deaths in a row, with no group scored in between, end the job. An intermittently
  // failing scorer does not reach it: a group dies only after reward.max_attempts failures of one
  // sample or rollout.max_attempts failed leases.
  static constexpr int64_t kMostDeadInARow = 16;

  // FAILED_PRECONDITION, with the reason of the last death, once kMostDeadInARow groups have died
  // since a call last saw a newly scored one; otherwise OK or the store's error.
  absl::Status Check(TrajectoryStore& store);

 private:
  int64_t scored_seen_ = 0;
  int64_t dead_seen_ = 0;
  int64_t dead_before_ = 0;  // when scored_seen_ was read
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_DEAD_GROUP_GUARD_H_
