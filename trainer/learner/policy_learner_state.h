#ifndef FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
#define FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "model/packed_forward.h"
#include "model/transformer.h"
#include "trainer/learner/lent_parts.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/optimizer.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/shard_layout.h"
#include "trainer/learner/state_files.h"
#include "trainer/learner/state_stream.h"
#include "trainer/learner/step_plan.h"
#include "trainer/loss/loss.h"

// Internal to PolicyLearner's source files.

namespace freshet {

// The tensors of `weights` in the order of the arena; a tied head appears once.
std::vector<at::Tensor> Leaves(const TransformerWeights& weights);
std::vector<Parameter> Parameters(const ParameterLayout& layout);

constexpr absl::Duration kLoanWarning = absl::Seconds(10);

// Microbatches of a batch: the trees of each, and its size.
struct Runs {
  std::vector<std::vector<size_t>> trees;
  std::vector<int64_t> tokens;

  size_t size() const { return trees.size(); }
};

// A microbatch and its columns.
struct PolicyLearner::Run {
  std::vector<PackTree> trees;
  TrainingRows::Columns columns;
  PackedBatch batch;
};

// Of all ranks.
struct PolicyLearner::Agreement {
  StepSums sums;
  bool any_lends = false;  // its state to a checkpoint, perhaps until it is written
};

struct PolicyLearner::State {
  struct RunLoss {
    LossOutput output;
    double model_flops = 0;
  };

  State(PolicyLearnerOptions given, at::Device given_device, const Clock& given_clock)
      : options(std::move(given)),
        device(given_device),
        clock(given_clock),
        layout(MakeParameterLayout(options.model)),
        model(options.model, device),
        shards(layout, /*ranks=*/1),
        parameters(Parameters(layout)) {}
  // Call SetRanks({}) first; otherwise this may wait for rank 0.
  ~State() { AwaitSnapshot(); }

  // Holds a whole state: of zeros, or the tensors of `from`, which may lack `reference`.
  struct Held {
    at::Tensor masters, reference;
    AdamWState optimizer;
  };
  absl::Status HoldWhole(Held from = {});
  // Holds what `files` have, if there are any.
  absl::Status LoadFiles();
  // LoadFiles, unless the state may be divided.
  absl::Status LoadUndivided() {
    return options.sharding == Sharding::kNone ? LoadFiles() : absl::OkStatus();
  }
  // Whether the options are valid. INVALID_ARGUMENT: AdamW::Create's.
  absl::Status CheckOptimizer() const;
  // That compute microbatches. `divides`: the weights are divided.
  int Threads(bool divides) const;
  // Reads all weights of `from` into host memory, in the type of the computation.
  absl::StatusOr<at::Tensor> ReadWeights(StateFiles& from) const;
  // For the part of `rank`: `from`, or without tensors moments of 0.
  absl::Status ResetOptimizer(int rank, AdamWState from = {});
  // Holds this rank's part of a divided state. `whole`: with Sharding::kOptimizer, all weights in
  // the type of the computation.
  absl::Status HoldPart(ShardLayout divided, int rank, Held part, at::Tensor whole);
  // Gathers the parts of all ranks on rank 0 in `whole`, of the arena's size; undefined on the
  // others. A collective operation.
  absl::Status GatherParts(const at::Tensor& part, const at::Tensor& whole) const;
  std::vector<ParameterRange> ParameterRanges() const;
  void MakeLeaves();
  // Whether this rank has a part.
  bool divided() const { return shards.ranks() > 1; }
  // Whose activations the next step keeps in host memory.
  int64_t HostTokens() const { return device.is_cpu() ? tokens_at_once : 0; }
  bool divides_weights() const { return divided() && options.sharding == Sharding::kFull; }

  PolicyLearnerOptions options;
  const at::Device device;
  const Clock& clock;
  ParameterLayout layout;
  Transformer model;
  // Open files that have rank 0's state, until it is loaded or divided; null afterwards.
  std::shared_ptr<StateFiles> files;
  std::shared_ptr<StateFiles> reference_files;  // likewise, of the frozen policy; may be `files`
  ShardLayout shards;                           // of one rank: the state is whole
  std::vector<Parameter> parameters;
  std::vector<ShardLayout::Piece> pieces;  // of all ranks, as their optimizers have them
  // Of the whole arena or, where noted, of this rank's part if the state is divided.
  at::Tensor masters;  // part
  at::Tensor rounded;  // the masters in bf16, part; undefined in fp32
  at::Tensor weights;  // that a forward pass uses: `rounded` or else `masters` if those are whole;
                       // undefined if they are divided too
  at::Tensor gradients;       // undefined before they are needed, and if they are divided
  at::Tensor head_gradients;  // of a tied head; the rest of `gradients`
  at::Tensor part_gradients;  // part; undefined if the state is whole
  at::Tensor reference;  // the frozen policy, in the type of the computation; part if weights are
                         // divided; undefined without one
  at::Tensor published;  // what Arena returned, in host memory; undefined where it is `weights`

  // With the gradients. Their values are the weights in fp32; in bf16 they are not used.
  TransformerWeights leaves;
  std::optional<Microbatches> microbatches;
  std::optional<AdamW> optimizer;
  std::vector<std::shared_ptr<Notification>> loans;  // of the state; see Snapshot
  // Of the largest batch so far; before the first one, what a microbatch may have.
  int64_t tokens_at_once = options.max_tokens_per_microbatch;
  bool has_trained = false;
  Communicator* ranks = nullptr;       // null: alone
  Communicator* background = nullptr;  // null: none
  int rank_number = 0;
  int ranks_here = 1;
  std::function<void(RankPhase)> on_phase = [](RankPhase) {};

  // Asked before each microbatch, because the result is of no use once the group has failed.
  absl::Status GroupError() const { return ranks == nullptr ? absl::OkStatus() : ranks->error(); }
  bool NeedsReference() const { return options.loss.NeedsReference() && reference.defined(); }
  Entropy LossEntropy() const {
    return options.loss.NeedsEntropy() ? Entropy::kDifferentiable : Entropy::kValue;
  }
  double temperature() const { return options.temperature > 0 ? options.temperature : 1.0; }
  at::ScalarType type() const { return options.bf16 ? at::kBFloat16 : at::kFloat; }
  // This rank's weights in that type.
  const at::Tensor& part_weights() const { return options.bf16 ? rounded : masters; }
  TransformerWeights PolicyWeights() const {
    return options.bf16 ? WidenVectors(SeparateHead(ViewWeights(layout, weights)), leaves) : leaves;
  }
  TransformerWeights ReferenceWeights() const {
    const TransformerWeights views = ViewWeights(layout, reference);
    return options.bf16 ? WidenVectors(views) : views;
  }
  // Allocates them first.
  void ZeroGradients();
  // Completes `gradients`.
  void AddHeadGradients() {
    if (!head_gradients.defined()) return;
    const at::NoGradGuard no_grad;
    ViewBlock(layout.embed, gradients, 0).add_(head_gradients);
  }

  Runs Split(const std::vector<PackTree>& trees) const {
    Runs runs;
    const int64_t most = options.max_tokens_per_microbatch;
    runs.trees = PackByTokens(
        trees, device.is_cpu() ? MicrobatchTokens(trees, most, layout.num_elements) : most);
    for (const std::vector<size_t>& run : runs.trees) {
      int64_t& tokens = runs.tokens.emplace_back();
      for (const size_t tree : run) tokens += PackedTokens(trees[tree]);
    }
    return runs;
  }

  Run MakeRun(const Minibatch& share, const std::vector<size_t>& chosen) const;
  std::vector<Run> MakeRuns(const Minibatch& share, const Runs& split) const;
  absl::StatusOr<RunLoss> ComputeRun(const Run& run, const Minibatch& share, bool may_add) const;
  absl::StatusOr<RunLoss> LossOf(const Run& run, const Minibatch& share, const TargetLogprobs& out,
                                 const at::Tensor& ref_logprobs) const;

  void NoteBatch(const Runs& runs) {
    if (!std::exchange(has_trained, true)) tokens_at_once = 0;
    int64_t sum = 0;
    int64_t largest = 0;
    for (const int64_t tokens : runs.tokens) {
      sum += tokens;
      largest = std::max(largest, tokens);
    }
    tokens_at_once = std::max(tokens_at_once, std::min(sum, largest * microbatches->threads()));
  }

  // One optimizer step, after AwaitLoans; errors of AdamW::Step.
  absl::StatusOr<StepReport> Update(double learning_rate,
                                    const AdamW::AddSquares& add_squares = nullptr) {
    on_phase(RankPhase::kUpdating);
    return optimizer->Step(learning_rate, divided() ? part_gradients : gradients, masters, rounded,
                           microbatches->pool(), add_squares);
  }

  // The loan ends when the result is destroyed.
  std::shared_ptr<const void> Lend() {
    const auto& ended = loans.emplace_back(std::make_shared<Notification>());
    return {ended.get(), [ended](const void*) { ended->Notify(); }};
  }
  // This rank's parts of a divided state. If a rank has no memory for a copy, none makes one. A
  // collective operation.
  absl::StatusOr<LentParts> LendParts();
  StateParts Columns() const;
  // Waits until the snapshot of a divided state has been read (rank 0) or sent.
  void AwaitSnapshot();
  void AwaitLoans();
  bool Lends() const {
    return std::ranges::any_of(loans, [](const auto& ended) { return !ended->HasBeenNotified(); });
  }
  void AwaitWritten(Notification& ended) const;
  // Ends a snapshot that is read or sent: the communicators are about to go.
  void AbandonSnapshot();
  std::weak_ptr<GatheredBlocks> snapshot;        // that rank 0 reads
  std::shared_ptr<Notification> snapshot_ended;  // once `snapshot` is gone; null: there was none
  std::thread serving;                           // of another rank's parts, over `background`

  TargetLogprobs Forward(const TransformerWeights& with, const PackedBatch& batch, double temp,
                         Entropy entropy, const at::Tensor& head_sum = {}) const {
    return PackedForward(model, with, batch, temp, entropy, options.activation_checkpointing,
                         head_sum);
  }
  // With the policy's weights, for Microbatches::AddGradients.
  TargetLogprobs ForwardPolicy(const PackedBatch& batch, double temp, Entropy entropy,
                               bool may_add) const {
    return Forward(PolicyWeights(), batch, temp, entropy,
                   may_add ? leaves.lm_head_VH.grad() : at::Tensor());
  }
};

inline std::vector<PackTree> Select(const std::vector<PackTree>& trees,
                                    const std::vector<size_t>& chosen) {
  std::vector<PackTree> selected;
  selected.reserve(chosen.size());
  for (const size_t tree : chosen) selected.push_back(trees[tree]);
  return selected;
}

StepSums SumsOf(const LossOutput& output, double model_flops);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
