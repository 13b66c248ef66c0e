#ifndef FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_
#define FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_

#include <cstdint>
#include <string>

#include "base/memory_plan.h"
#include "model/model_config.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// Bytes of activations that a training forward pass keeps for the backward pass, per token of the
// packed stream. Counts the tensors that transformer.cc saves.
int64_t ActivationBytesPerToken(const ModelConfig& model, bool bf16, bool checkpointing);

// A minibatch of equal trees.
struct BatchShape {
  int64_t trees = 1;
  int64_t prefix = 1;    // tokens
  int64_t suffixes = 1;  // of a tree
  int64_t suffix = 1;    // tokens of each
};

// The item of PolicyLearnerOptions::gpu_copies.
inline constexpr const char* kGpuCopies = "copies for CUDA IPC";

// The size of a version of the weights as it is published.
int64_t PublishedBytes(const PolicyLearnerOptions& options);

// What the PolicyLearner of rank 0 of `ranks` needs to train on a `batch`, which is its share, and
// the copies of the staged and the committed version (weights/weight_publisher.h). Pure.
MemoryPlan PlanLearner(PolicyLearnerOptions options, const BatchShape& batch, int64_t ranks = 1);

// What a FrozenLearner and the copies of its published versions need. Pure.
MemoryPlan PlanFrozenLearner(const PolicyLearnerOptions& options);

// Adds to the plan of rank 0's process those of the other ranks, which need the same without what
// only rank 0 holds. `shards`: each keeps its shard of the two versions, to broadcast it.
void AddRanks(int64_t ranks, bool shards, MemoryPlan& plan);

// A snapshot of an element of the state: master and moments.
inline constexpr int64_t kSnapshotBytes = 12;

// Whether a snapshot copies `bytes` of the learner's state. Otherwise the next update of the
// weights waits until the snapshot is written. The next step keeps activations of up to `tokens`
// tokens.
struct SnapshotDecision {
  bool copies = true;
  std::string reason;
};
SnapshotDecision DecideSnapshot(const PolicyLearnerOptions& options, int64_t bytes, int64_t tokens);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LEARNER_MEMORY_H_
