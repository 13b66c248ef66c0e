#ifndef FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_
#define FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/memory_plan.h"
#include "model/packed_batch.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// Bytes of activations that a training forward pass keeps for the backward pass, per token of the
// packed stream. Counts the tensors that transformer.cc saves.
int64_t ActivationBytesPerToken(const ModelConfig& model, bool bf16, bool checkpointing);

// The tokens of `batch` whose activations are kept at the same time.
int64_t TokensAtOnce(const PolicyLearnerOptions& options, const std::vector<PackTree>& batch);

// What a PolicyLearner needs to train on a `batch`, and the copies of the staged and the committed
// version (weights/weight_publisher.h). Pure.
MemoryPlan PlanLearner(const PolicyLearnerOptions& options, const std::vector<PackTree>& batch);

// Adds the processes of further ranks to the plan of rank 0's process.
void AddRanks(int64_t ranks, MemoryPlan& plan);

// The size of a snapshot of the learner's state.
int64_t SnapshotBytes(const PolicyLearnerOptions& options);

// Whether a snapshot of the learner's state is a copy. Otherwise the next update of the weights
// waits until the snapshot is written.
struct SnapshotDecision {
  bool copies = true;
  std::string reason;
};
SnapshotDecision DecideSnapshot(const PolicyLearnerOptions& options);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_
