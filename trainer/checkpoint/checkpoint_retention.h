#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_RETENTION_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace freshet {

// Which checkpoints of a job are kept: those of at least one of these rules.
struct CheckpointRetention {
  int64_t last = 2;   // the newest versions
  int64_t every = 0;  // versions that are multiples of it; 0: none
  int64_t best = 0;   // versions with the highest scores; of equal ones the newer
  // With `best`, a version that is a multiple of it gets a score some time after its checkpoint.
  int64_t evaluate_every = 1;
  std::set<int64_t> pinned = {};
};

struct HeldCheckpoint {
  int64_t version = 0;
  std::optional<double> score;
};

// At most so many checkpoints are kept because they have no score yet.
constexpr int64_t kMostAwaitedScores = 4;

// The versions to keep of `held`, which is sorted by version, newest first. Pure.
std::set<int64_t> VersionsToKeep(const std::vector<HeldCheckpoint>& held,
                                 const CheckpointRetention& rule);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_RETENTION_H_
