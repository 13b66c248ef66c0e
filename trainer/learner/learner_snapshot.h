#ifndef FRESHET_TRAINER_LEARNER_LEARNER_SNAPSHOT_H_
#define FRESHET_TRAINER_LEARNER_LEARNER_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "model/parameter_layout.h"
#include "trainer/checkpoint/checkpoint_contents.h"
#include "trainer/learner/lent_parts.h"
#include "trainer/learner/state_blocks.h"
#include "trainer/learner/state_files.h"

namespace freshet {

// The tensors that a checkpoint has of a learner's state.
struct SnapshotLayout {
  const ParameterLayout& layout;
  const std::vector<Parameter>& parameters;
  int64_t optimizer_steps = 0;
};

// The state of a learner that divides nothing.
std::shared_ptr<StateBlocks> WholeState(const ParameterLayout& layout, LentParts columns);

// A snapshot that reads `state` while it is written, and keeps one block of a column at most.
std::shared_ptr<LearnerState> SnapshotOf(const SnapshotLayout& of,
                                         std::shared_ptr<StateBlocks> state);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LEARNER_SNAPSHOT_H_
