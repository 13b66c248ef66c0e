#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fault_point.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_retention.h"

namespace freshet {

// The checkpoints of a job are in one folder ROOT, which several trainers may share: the current
// one, and former ones that are fenced but have not noticed. Each has a *writer epoch*, larger than
// all earlier ones (WriterEpoch), which the manifests of its checkpoints carry.
//
//   step-N               the checkpoint of version N
//   step-N.epoch-E       the same, by writer epoch E. If both exist, the one with the higher writer
//                        epoch in its manifest counts
//   .step-N.epoch-E.tmp  being written, or being deleted, by E
//   replaced-step-N      set aside: damaged, or of an abandoned history
//
// Only writer E creates names with epoch E. A new checkpoint is renamed to step-N, which fails if
// step-N exists. If the existing one is from a newer writer, it stays and the write fails.
// Otherwise the new one becomes step-N.epoch-E and then exchanges names with it; on a file system
// without RENAME_EXCHANGE (NFS) it keeps that name. So a complete step-N exists at every moment of
// a replacement. An older trainer that resumes after a pause at any point loses no checkpoint of a
// newer one: it moves a directory to its own name before it reads the manifest and deletes, and
// moves a newer one back.
//
// Two gaps remain. A trainer that is paused after MarkDurable and resumes deletes the checkpoints
// before its own durable one, except those of newer writers. And because the epochs of a restored
// store repeat (WriterEpoch), a fenced trainer that has not written yet may have the writer epoch
// of its successor.

// Directory operations that the guarantees above rely on; replaceable in tests. Thread-safe.
class DirectoryOps {
 public:
  virtual ~DirectoryOps() = default;
  // rename(2): 0 or errno. EEXIST or ENOTEMPTY if `to` is a non-empty directory.
  virtual int Rename(const std::string& from, const std::string& to);
  // Atomically exchanges two names: 0 or errno.
  virtual int Exchange(const std::string& a, const std::string& b);
  virtual absl::Status Sync(const std::string& path);

  static DirectoryOps& Default();
};

// Writes one checkpoint as described above and returns the SHA-256 of its manifest; files and names
// are then durable. A damaged step-N is set aside. `before_rename` runs once all bytes are durable,
// before the directory gets its name; its error aborts the write. On error nothing new remains:
//   RESOURCE_EXHAUSTED: the disk is full.
//   FAILED_PRECONDITION: step-N is from a newer writer epoch or has another format, or a path
//     cannot be written.
//   UNAVAILABLE: the manifest of an existing step-N cannot be read.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& root, CheckpointContents contents,
                                            const std::function<absl::Status()>& before_rename,
                                            FaultPoints& faults,
                                            DirectoryOps& ops = DirectoryOps::Default());

struct FoundCheckpoints {
  // Verified; the newest 4, newest first, by (lineage, version, writer epoch).
  std::vector<FoundCheckpoint> complete;
  std::vector<std::string> older;    // paths of the others in that order, see OpenCheckpoint
  std::vector<std::string> damaged;  // paths
};

// Finds the checkpoints of `job` under `root`. Damaged, unreadable and vanished ones are left out
// of `complete`, with a warning. Changes nothing. A `damaged` one may be intact later, because
// another trainer may have renamed it temporarily. FAILED_PRECONDITION: one belongs to another job
// or has another format; the message names it.
absl::StatusOr<FoundCheckpoints> FindAllCheckpoints(const std::string& root,
                                                    const std::string& job);

struct ListedCheckpoint {
  std::string path;
  CheckpointManifest manifest;
};
// The checkpoints whose files exist with the sizes in their manifests, newest first. Reads only
// manifests, so it is fast for any model size.
std::vector<ListedCheckpoint> ListCheckpoints(const std::string& root);

// The directory of version `step`; ROOT/step-N if there is none.
std::string CheckpointPath(const std::string& root, int64_t step);

// The writer epoch of a trainer whose epoch in the store is `store_epoch`: that number, or a larger
// one if the folder has higher epochs because the store was restored from a backup. `seen`:
// HighestWriterEpoch(root), read before the epoch was opened, so that a successor's do not count.
int64_t WriterEpoch(int64_t store_epoch, int64_t seen);
// The highest writer epoch in the names and manifests of the folder; 0 if there is none.
int64_t HighestWriterEpoch(const std::string& root);

// Call after opening an epoch. Deletes unfinished directories of older writers, and renames to
// replaced-step-N (replacing a former one) the checkpoints in `passed_over` and those in `damaged`
// (FindAllCheckpoints) that OpenCheckpoint still finds damaged. Keeps checkpoints of newer writers.
// Vanished paths are not an error.
absl::Status TidyCheckpoints(const std::string& root, int64_t writer_epoch,
                             const std::vector<std::string>& passed_over,
                             const std::vector<std::string>& damaged = {},
                             DirectoryOps& ops = DirectoryOps::Default());

// Deletes the checkpoints up to version `newest` that `rule` (VersionsToKeep) does not keep, and
// all set-aside ones up to there. Only versions with a complete checkpoint (InspectCheckpoint)
// count; damaged ones up to `newest` are deleted unless they are pinned. Unreadable ones neither
// count nor are deleted, and those of newer writers are kept. Versions above `newest`, which has
// just become durable, belong to an abandoned history: they are ignored until they are overwritten.
absl::Status PruneCheckpoints(const std::string& root, int64_t writer_epoch, int64_t newest,
                              const CheckpointRetention& rule,
                              DirectoryOps& ops = DirectoryOps::Default());

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H_
