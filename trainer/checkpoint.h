#ifndef FRESHET_TRAINER_CHECKPOINT_H_
#define FRESHET_TRAINER_CHECKPOINT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/fault_point.h"
#include "trainer/checkpoint_contents.h"

namespace freshet {

// A checkpoint is a directory ROOT/step-N in Hugging Face layout, plus
//   optimizer.safetensors      moments
//   trainer_state.json         TrainingState
//   manifest.json              written last: step, lineage, digest, and name, size and SHA-256 of
//                              every other file
// It is written as ROOT/.step-N.tmp, fsynced, and renamed, so a directory named step-N is complete.

// Writes one checkpoint and returns the SHA-256 of its manifest. An existing step-N (of a lineage
// that was orphaned) is replaced. `before_rename` runs when all bytes are durable, before the
// directory gets its name; its error stops the write. On error nothing new is left behind:
// RESOURCE_EXHAUSTED for a full disk, else FAILED_PRECONDITION naming the path.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& root,
                                            const CheckpointContents& contents,
                                            const std::function<absl::Status()>& before_rename,
                                            FaultPoints& faults);

// A checkpoint found on disk, verified against its manifest.
struct FoundCheckpoint {
  std::string path;
  std::string manifest_sha256;
  TrainingState state;
  int64_t optimizer_steps = 0;
};

// The complete checkpoints of `job` under `root`, newest first, by (lineage, version). Temporary
// directories of a killed process are removed. Damaged checkpoints are left out, with a warning.
// FAILED_PRECONDITION: one belongs to another job.
absl::StatusOr<std::vector<FoundCheckpoint>> FindAllCheckpoints(const std::string& root,
                                                                const std::string& job);
// The first of them; nullopt when there is none.
absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(const std::string& root,
                                                                    const std::string& job);

// Verifies the manifest and reads the state of one checkpoint directory.
// DATA_LOSS naming the file that is missing, of another size or of another hash.
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path);

// Takes a checkpoint out of sight: step-N becomes replaced-step-N, in place of a former one.
absl::Status SetAsideCheckpoint(const std::string& path);

// Deletes all but the newest `keep_last` checkpoints up to version `newest`, and those set aside up
// to there; `always_keep` (a version) stays too. What is above `newest`, the version written last,
// was left behind by a history that did not last: it counts for nothing until it is overwritten.
absl::Status PruneCheckpoints(const std::string& root, int64_t newest, int64_t keep_last,
                              std::optional<int64_t> always_keep);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_H_
