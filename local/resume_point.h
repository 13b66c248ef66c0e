#ifndef FRESHET_LOCAL_RESUME_POINT_H_
#define FRESHET_LOCAL_RESUME_POINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "local/run_folder.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {

// Where a run's next process starts: fresh, or as a fork of what an earlier process left. The
// memory of that process is gone, so rows newer than the checkpoint are orphaned and their prompts
// come again, under attempt numbers that were never used.
struct ResumePoint {
  StoreOrigin origin;
  int32_t first_attempt = 0;
  std::optional<FoundCheckpoint> checkpoint;  // null: start from the beginning
  std::vector<std::string> damaged;           // paths of checkpoints
  int64_t parent_lineage = 0;                 // meaningful when origin.resumed
  double wall_seconds = 0;                    // spent by earlier processes
  int64_t evaluated = -1;                     // newest version with an evaluation; -1: none
};

// Reads ledger, metrics and checkpoints of the folder. Errors name the file: INVALID_ARGUMENT for a
// malformed ledger, FAILED_PRECONDITION for a folder of another job, or of one with another
// staleness bound, policy, group size or number of groups in a step: the ledger's promises are made
// with those.
absl::StatusOr<ResumePoint> FindResumePoint(const RunFolder& folder, const StoreOptions& options);

}  // namespace freshet

#endif  // FRESHET_LOCAL_RESUME_POINT_H_
