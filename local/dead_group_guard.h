#ifndef FRESHET_LOCAL_DEAD_GROUP_GUARD_H_
#define FRESHET_LOCAL_DEAD_GROUP_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Notices a job that cannot go on because every group dies, as with a scorer that always fails:
// without it the job would generate for ever. Logs each death with its reason. Confined to one
// thread.
class DeadGroupGuard {
 public:
  // So many groups that died with none scored in between end the job. A scorer that fails now and
  // then never gets there: each group takes reward.max_attempts failures of one sample to die, or
  // rollout.max_attempts failed leases.
  static constexpr int64_t kMostDeadInARow = 16;

  // FAILED_PRECONDITION, with the reason of the last death, once kMostDeadInARow groups have died
  // since a call last saw one newly scored; else OK, or the store's error.
  absl::Status Check(TrajectoryStore& store);

 private:
  int64_t scored_seen_ = 0;
  int64_t dead_seen_ = 0;
  int64_t dead_before_ = 0;  // when scored_seen_ was read
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_DEAD_GROUP_GUARD_H_
