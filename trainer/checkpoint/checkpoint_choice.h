#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace freshet {

// How a try to go on from a checkpoint ended.
struct CheckpointTry {
  enum class Stage {
    kLoading,  // of its files
    kOpening,  // of an epoch in the store, which has the surviving history
    kOpened,   // the store has taken its version
  };
  Stage stage = Stage::kLoading;  // that it came to
  absl::Status status;
  int64_t older = 0;  // complete checkpoints that are older
};

struct CheckpointDecision {
  bool try_older = false;
  std::string reason;  // "" when nothing is wrong with the checkpoint
};

// Whether to try the checkpoint before this one: this one is damaged, or the store does not take it
// (FAILED_PRECONDITION): redone steps replaced it, it is ahead of the store, or it was trained on
// other samples. Any other failure is none of the checkpoint's. Pure.
CheckpointDecision DecideCheckpoint(const CheckpointTry& tried);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_
