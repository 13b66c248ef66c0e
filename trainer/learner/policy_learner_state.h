#ifndef FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
#define FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "model/packed_forward.h"
#include "model/transformer.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/optimizer.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/step_plan.h"
#include "trainer/loss/loss.h"

// Internal to PolicyLearner's source files.

namespace freshet {

// The tensors of `weights` in the order of the arena; a tied head appears once.
std::vector<at::Tensor> Leaves(const TransformerWeights& weights);
// Their places in the arena of which they are views.
std::vector<ParameterRange> Ranges(const TransformerWeights& weights);

constexpr absl::Duration kLoanWarning = absl::Seconds(10);

// Microbatches of a batch: the trees of each, and its size.
struct Runs {
  std::vector<std::vector<size_t>> trees;
  std::vector<int64_t> tokens;

  size_t size() const { return trees.size(); }
};

struct PolicyLearner::State {
  State(PolicyLearnerOptions given, at::Device given_device, const Clock& given_clock)
      : options(std::move(given)),
        device(given_device),
        clock(given_clock),
        layout(MakeParameterLayout(options.model)),
        model(options.model, device),
        masters(at::zeros({layout.num_elements}, at::TensorOptions(device).dtype(at::kFloat))),
        gradients(at::zeros_like(masters)),
        leaves(ViewWeights(layout, masters)),
        microbatches(MicrobatchThreads(device.is_cpu() ? options.threads : 1, layout.num_elements),
                     options.max_tokens_per_microbatch, Leaves(leaves)) {
    const std::vector<at::Tensor> parts = Leaves(ViewWeights(layout, gradients));
    size_t next = 0;
    for (const at::Tensor& leaf : Leaves(leaves)) {
      leaf.set_requires_grad(true);
      leaf.mutable_grad() = parts[next++];
    }
    if (options.bf16) rounded = masters.to(at::kBFloat16);
  }

  PolicyLearnerOptions options;
  const at::Device device;
  const Clock& clock;
  ParameterLayout layout;
  Transformer model;
  // Flat arenas.
  at::Tensor masters;
  at::Tensor gradients;
  at::Tensor rounded;    // the masters in bf16; undefined in fp32
  at::Tensor reference;  // the frozen policy, in the type of the computation; undefined without one
  at::Tensor published;  // what Arena returned, in host memory; undefined on the CPU

  TransformerWeights leaves;  // views of the masters, whose gradients are views of `gradients`
  Microbatches microbatches;
  std::optional<AdamW> optimizer;
  std::vector<std::shared_ptr<Notification>> loans;  // of the state; see Snapshot
  // Of the largest batch so far; before the first one, what a microbatch may have.
  int64_t tokens_at_once = options.max_tokens_per_microbatch;
  bool has_trained = false;
  Communicator* ranks = nullptr;  // null: alone
  int rank_number = 0;
  std::function<void(RankPhase)> on_phase = [](RankPhase) {};

  // Asked before each microbatch, because the result is of no use once the group has failed.
  absl::Status GroupError() const { return ranks == nullptr ? absl::OkStatus() : ranks->error(); }
  double temperature() const { return options.temperature > 0 ? options.temperature : 1.0; }
  // What a forward pass computes with, and what is published.
  const at::Tensor& arena() const { return options.bf16 ? rounded : masters; }
  // For what is read from files; see Adopt.
  at::Tensor HostArena() const {
    return device.is_cpu() ? masters : at::zeros({layout.num_elements}, at::kFloat);
  }
  // Takes weights that were written to a HostArena.
  void Adopt(const at::Tensor& host) {
    if (!host.is_same(masters)) masters.copy_(host);
    if (options.bf16) rounded.copy_(masters);
  }
  TransformerWeights PolicyWeights() const {
    return options.bf16 ? WidenVectors(ViewWeights(layout, rounded), leaves) : leaves;
  }
  TransformerWeights ReferenceWeights() const {
    const TransformerWeights weights = ViewWeights(layout, reference);
    return options.bf16 ? WidenVectors(weights) : weights;
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

  void NoteBatch(const Runs& runs) {
    if (!std::exchange(has_trained, true)) tokens_at_once = 0;
    int64_t sum = 0;
    int64_t largest = 0;
    for (const int64_t tokens : runs.tokens) {
      sum += tokens;
      largest = std::max(largest, tokens);
    }
    tokens_at_once = std::max(tokens_at_once, std::min(sum, largest * microbatches.threads()));
  }

  // One optimizer step with `gradients`; errors of AdamW::Step.
  absl::StatusOr<StepReport> Update(double learning_rate) {
    AwaitLoans();
    return optimizer->Step(learning_rate, gradients, masters, rounded, microbatches.pool());
  }

  // The loan ends when the result is destroyed.
  std::shared_ptr<const void> Lend() {
    const auto& ended = loans.emplace_back(std::make_shared<Notification>());
    return {ended.get(), [ended](const void*) { ended->Notify(); }};
  }
  void AwaitLoans() {
    for (const auto& ended : loans) {
      while (!ended->WaitFor(kLoanWarning)) {
        FRESHET_LOG(Warning) << "event=waiting reason="
                             << LogQuoted("the weights are being written to a checkpoint");
      }
    }
    loans.clear();
  }

  TargetLogprobs Forward(const TransformerWeights& with, const PackedBatch& batch, double temp,
                         Entropy entropy) const {
    return PackedForward(model, with, batch, temp, entropy, options.activation_checkpointing);
  }
};

inline std::vector<PackTree> Select(const std::vector<PackTree>& trees,
                                    const std::vector<size_t>& chosen) {
  std::vector<PackTree> selected;
  selected.reserve(chosen.size());
  for (const size_t tree : chosen) selected.push_back(trees[tree]);
  return selected;
}

struct PolicyLearner::RunLoss {
  LossOutput output;
  double model_flops = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
