#ifndef FRESHET_LOCAL_RESUME_POINT_H_
#define FRESHET_LOCAL_RESUME_POINT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "local/run_folder.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {

// Where the next process of a run starts: fresh, or as a fork of an earlier process's results. That
// process's memory is lost, so rows newer than the checkpoint are orphaned and their prompts are
// repeated under unused attempt numbers.
struct ResumePoint {
  StoreOrigin origin;
  int32_t first_attempt = 0;
  std::optional<FoundCheckpoint> checkpoint;  // null: start from the beginning
  std::vector<std::string> damaged;           // paths of checkpoints
  int64_t parent_lineage = 0;                 // valid if origin.resumed
  double wall_seconds = 0;                    // spent by earlier processes
  std::set<std::string> evaluated;            // evaluation sets done for origin.policy.version
  // Of the surviving steps up to origin.policy.version, in order; only those with rewards by task.
  struct TaskRewards {
    int64_t lineage = 0;
    int64_t step = 0;
    std::map<std::string, double> rewards;
  };
  std::vector<TaskRewards> task_rewards;
};

// Reads ledger, metrics and checkpoints of the folder. Errors name the file: INVALID_ARGUMENT for a
// malformed ledger; FAILED_PRECONDITION for a folder of another job, or of one with another
// staleness bound, policy, group size or number of groups per step, because the ledger's guarantees
// depend on these.
absl::StatusOr<ResumePoint> FindResumePoint(const RunFolder& folder, const StoreOptions& options);

}  // namespace freshet

#endif  // FRESHET_LOCAL_RESUME_POINT_H_
