#ifndef FRESHET_TRAINER_LEARNER_POLICY_LEARNER_H_
#define FRESHET_TRAINER_LEARNER_POLICY_LEARNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/container_limits.h"
#include "job/loss_spec.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/packed_batch.h"
#include "trainer/learner/learner.h"
#include "trainer/learner/learning_rate.h"
#include "weights/manifest.h"

namespace freshet {

class BlockwisePass;
class Communicator;
class Tokenizer;
struct Minibatch;
struct StepSums;

// What ranks that train together divide among themselves (shard_layout.h).
enum class Sharding {
  kNone,
  kOptimizer,  // masters and moments; each holds the weights that it computes with (ZeRO-1)
  kFull,       // also those weights and the gradients (blockwise_pass.h)
};

struct PolicyLearnerOptions {
  ModelConfig model;
  std::string device = "cpu";  // that computes and holds the state; see OpenDevice
  bool bf16 = false;           // computes with and publishes bf16 weights; masters stay fp32
  LossSpec loss;
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // of the model, for loss.token_weights
  int64_t minibatches_per_step = 1;                      // optimizer steps per training step
  int64_t max_tokens_per_microbatch = 8192;
  // On a CPU: computes with up to this many; the result does not depend on it.
  int threads = 1;
  bool activation_checkpointing = false;  // see Transformer::Forward
  // On a GPU: equal batches give equal bits, at a cost. On the CPU they always do.
  bool deterministic = false;
  Sharding sharding = Sharding::kNone;  // of several ranks
  // With sharding: rank 0 has the whole state for a while, because it makes it, or because ranks
  // may join later. For plans of memory only.
  bool holds_whole_state = false;
  // Copies of the published weights on the trainer's GPU, for engines. For plans of memory only.
  int gpu_copies = 0;
  double temperature = 1.0;      // of the rollouts; 0 counts as 1
  int64_t max_new_tokens = 1;    // constant of the sequence_sum_norm aggregate
  bool whole_responses = false;  // see MakeTrainingRows
  bool by_task = false;          // likewise
  LearningRateSchedule schedule;
  // Bytes of host memory that the process can still allocate.
  std::function<int64_t()> available_memory = [] { return AvailableMemory(); };
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0, grad_clip_norm = 1.0;
};

// What a rank is doing.
enum class RankPhase {
  kIdle,
  kReading,     // its samples from the store
  kComputing,   // its share of a minibatch
  kExchanging,  // all-gather of outcomes
  kSumming,     // all-reduce of gradients
  kReducing,    // reduce-scatter of gradients
  kGathering,   // gather or all-gather of weights or of the state
  kUpdating,
  kSaving,  // waits until a checkpoint is written
};

// The ranks that a learner trains with.
struct RankUse {
  Communicator* ranks = nullptr;            // outlives its use; null: the learner is alone
  Communicator* background = nullptr;       // a second one, for snapshots of a divided state
  std::function<void(RankPhase)> on_phase;  // called when this rank begins another part of its work
  int number = 0;  // of this rank in messages, which may differ from its position in the group
  int here = 1;    // ranks that share this machine's memory, with this one
};

// One row of supervised warm-up: loss on the answer only.
struct SftExample {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
};

// LibTorch learner: a policy with fp32 masters in one flat arena, trained with the
// declarative policy loss. Prompts shared by a group are computed once; sequences are packed. Steps
// with several minibatches compute the proximal log-probs before the first update. LibTorch errors
// become INTERNAL; RESOURCE_EXHAUSTED, naming the item of PlanLearner, its size and what to change:
// there is too little memory. Not thread-safe.
class PolicyLearner final : public SingleProcessLearner {
 public:
  // Errors of OpenDevice. INVALID_ARGUMENT: an option.
  static absl::StatusOr<std::unique_ptr<PolicyLearner>> Create(PolicyLearnerOptions options,
                                                               const Clock& clock);
  ~PolicyLearner() override;

  // Initial weights, with moments of 0; call one of the three before training. With
  // options().sharding, files are opened, and read when they are needed: ranks divide the state
  // without any of them having all of it.
  //
  // Errors of StateFiles.
  absl::Status LoadModel(std::shared_ptr<const ModelFiles> files);
  // Also takes the moments and the number of updates.
  absl::Status LoadCheckpoint(const std::string& directory, int64_t optimizer_steps);
  void InitializeRandom(uint64_t seed);  // throws LibTorch's errors

  // Freezes the current weights as the reference policy of the KL term.
  void FreezeReference();
  // Takes the masters of a checkpoint directory instead. Errors of StateFiles.
  absl::Status LoadReference(const std::string& directory);

  // One supervised step; returns the mean loss per answer token in nats. Uses its own optimizer
  // state, which BeginPolicyTraining() discards.
  absl::StatusOr<double> SftStep(const std::vector<SftExample>& examples, double learning_rate);
  void BeginPolicyTraining();

  // Log-probs of tokens 1.. of each sequence, each given its predecessors, by the training forward.
  absl::StatusOr<std::vector<std::vector<float>>> Score(
      const std::vector<std::vector<int32_t>>& sequences);

  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override;
  // The masters, or with bf16 all of them rounded as the forward pass rounds them.
  // On a GPU, a copy in host memory.
  absl::StatusOr<std::string_view> Arena() const override;
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override;

  // Parts of TrainStep, for ranks that train together (data parallelism): each computes its share
  // of a minibatch. Their learners hold the same state or, with options().sharding, its parts. Then
  // Arena, if the weights are divided, and Snapshot are collective operations: rank 0 calls them,
  // the others SendWeights and SendSnapshot.
  //
  // Abandons a snapshot of former ranks that is still read.
  void SetRanks(RankUse ranks);
  // Replaces weights, moments and reference by those of rank 0, which calls it too. With sharding
  // each of several ranks keeps its part, also rank 0 once all have theirs. Errors of Communicator.
  absl::Status SyncFromRankZero();
  // Whether this rank has a part of the state. It is lost with any of the ranks.
  bool divided() const;
  absl::Status SendWeights();
  absl::Status SendSnapshot();
  absl::Status SendState();
  // Which bytes of the arena each rank has to publish, by rank, together all of them.
  std::vector<std::vector<ByteRange>> ShardRanges() const;
  // Copies this rank's `ranges` of those, one after the other, to `shard` in host memory.
  absl::Status CopyShard(const std::vector<ByteRange>& ranges, std::span<std::byte> shard) const;
  // Makes rank 0's state whole again. The others call SendState.
  absl::Status HoldWholeState();
  // Sets `proximal_logprobs` of the columns by the current policy. A collective operation if the
  // weights are divided.
  absl::Status ComputeProximal(Minibatch& share) const;
  // One optimizer step with the gradients of all ranks' shares. All ranks return the same result,
  // unless the communicator fails or LibTorch fails on one of them. On errors the weights are
  // unchanged, unless the state is divided and the communicator has failed: then it is lost.
  // FAILED_PRECONDITION: as TrainStep. UNAVAILABLE: another rank has failed, or its weights are not
  // those of rank 0. INTERNAL, RESOURCE_EXHAUSTED: LibTorch's errors.
  absl::StatusOr<StepSums> Update(int64_t step, const Minibatch& share);

  // Of the arena.
  std::vector<WeightEntry> WeightEntries() const;
  int64_t num_parameters() const;
  int threads() const;
  bool on_gpu() const;
  const PolicyLearnerOptions& options() const;

 private:
  struct State;
  struct Run;
  struct RankOutcome;
  struct Agreement;
  // Sent by rank 0 before its state.
  struct SyncFacts {
    int64_t optimizer_steps = 0;
    int64_t has_reference = 0;
  };
  explicit PolicyLearner(std::unique_ptr<State> state);

  absl::StatusOr<StepSums> AddGradients(const Minibatch& share);
  absl::StatusOr<StepSums> AddGradientsBlockwise(const Minibatch& share);
  absl::Status ComputeProximalBlockwise(Minibatch& share) const;
  BlockwisePass MakePass(const std::vector<Run>& runs, const std::vector<int64_t>& tokens) const;
  absl::StatusOr<Agreement> Agree(const absl::StatusOr<StepSums>& own, bool lends) const;
  absl::Status SumGradients();
  absl::StatusOr<double> AddSquares(const std::vector<double>& own) const;
  absl::Status ReduceGradients();
  absl::StatusOr<SyncFacts> ReceiveFacts();
  absl::Status Receive(std::span<std::byte> bytes);
  absl::Status CopyState();
  absl::Status DivideState();
  absl::StatusOr<std::shared_ptr<const LearnerState>> SnapshotOfRanks() const;

  std::unique_ptr<State> state_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_POLICY_LEARNER_H_
