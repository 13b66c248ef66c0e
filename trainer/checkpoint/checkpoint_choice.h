#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace freshet {

// Result of trying to resume from a checkpoint.
struct CheckpointTry {
  enum class Stage {
    kLoading,  // reading its files
    kOpening,  // opening an epoch in the store, which has the surviving history
    kOpened,   // the store accepted its version
  };
  Stage stage = Stage::kLoading;  // last stage reached
  absl::Status status;
  int64_t older = 0;  // number of older complete checkpoints
};

struct CheckpointDecision {
  bool try_older = false;
  std::string reason;  // "" if the checkpoint is not at fault
};

// Whether to fall back to the previous checkpoint: this one is damaged, or the store rejects it
// (FAILED_PRECONDITION) because redone steps replaced it, it is ahead of the store, or it was
// trained on other samples. Other failures are not caused by the checkpoint. Pure.
CheckpointDecision DecideCheckpoint(const CheckpointTry& tried);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CHOICE_H_
