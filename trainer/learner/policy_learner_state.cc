#include "trainer/learner/policy_learner_state.h"

#include <utility>

#include "base/status_macros.h"
#include "trainer/learner/memory_uses.h"

namespace freshet {

std::vector<ParameterRange> PolicyLearner::State::ParameterRanges() const {
  std::vector<ParameterRange> ranges;
  for (const Parameter& parameter : parameters) ranges.push_back(parameter.range);
  return ranges;
}

absl::Status PolicyLearner::State::ResetOptimizer(int rank, AdamWState from) {
  std::vector<ParameterRange> own;
  pieces = shards.Divide(ParameterRanges(), /*fine=*/device.is_cpu());
  for (const ShardLayout::Piece& piece : pieces) {
    if (piece.rank == rank) own.push_back(piece.range);
  }
  const PolicyLearnerOptions& o = options;
  FRESHET_ASSIGN_OR_RETURN(
      AdamW made, AdamW::Create(std::move(own), shards.StateSize(rank),
                                {o.beta1, o.beta2, o.epsilon, o.weight_decay, o.grad_clip_norm},
                                device, std::move(from)));
  optimizer.emplace(std::move(made));
  return absl::OkStatus();
}

// Needs `weights`, unless they are divided.
void PolicyLearner::State::MakeLeaves() {
  int64_t largest = layout.num_elements;  // gradients that a microbatch has
  std::vector<at::Tensor> tensors;
  leaves = {};
  if (divides_weights()) {
    largest = 0;
    for (const ShardLayout::Block& block : shards.blocks()) largest = std::max(largest, block.size);
  } else {
    const at::Tensor values =
        options.bf16 ? at::empty({1}, masters.options()).expand({layout.num_elements}) : weights;
    leaves = SeparateHead(ViewWeights(layout, values));
    tensors = Leaves(leaves);
    for (const at::Tensor& leaf : tensors) leaf.set_requires_grad(true);
  }
  microbatches.emplace(MicrobatchThreads(device.is_cpu() ? options.threads : 1, largest),
                       options.max_tokens_per_microbatch, std::move(tensors),
                       [this](int64_t tokens) { return ActivationsOf(tokens, options, device); });
}

absl::Status PolicyLearner::State::HoldWhole(Held from) {
  const at::NoGradGuard no_grad;
  shards = ShardLayout(layout, /*ranks=*/1);
  masters = from.masters.defined()
                ? std::move(from.masters)
                : at::zeros({layout.num_elements}, at::TensorOptions(device).dtype(at::kFloat));
  reference = std::move(from.reference);
  if (options.bf16) rounded = masters.to(at::kBFloat16);
  weights = part_weights();
  gradients = head_gradients = part_gradients = published = at::Tensor();
  MakeLeaves();
  return ResetOptimizer(/*rank=*/0, std::move(from.optimizer));
}

absl::Status PolicyLearner::State::HoldPart(ShardLayout divided, int rank, Held part,
                                            at::Tensor whole) {
  const at::NoGradGuard no_grad;
  optimizer.reset();  // its memory
  shards = std::move(divided);
  masters = std::move(part.masters);
  if (options.bf16) rounded = masters.to(at::kBFloat16);
  weights = std::move(whole);
  reference = std::move(part.reference);
  gradients = head_gradients = published = at::Tensor();
  if (divides_weights()) part_gradients = at::zeros_like(masters);
  MakeLeaves();
  return ResetOptimizer(rank, std::move(part.optimizer));
}

void PolicyLearner::State::ZeroGradients() {
  const at::NoGradGuard no_grad;
  if (gradients.defined()) {
    gradients.zero_();
    if (head_gradients.defined()) head_gradients.zero_();
    return;
  }
  gradients = WithMemoryFor([this] { return UseOf("gradients", options, device); },
                            [this] {
                              return at::zeros({layout.num_elements},
                                               at::TensorOptions(device).dtype(at::kFloat));
                            });
  std::vector<at::Tensor> parts = Leaves(ViewWeights(layout, gradients));
  const std::vector<at::Tensor> tensors = Leaves(leaves);
  if (parts.size() < tensors.size()) {
    head_gradients = at::zeros_like(parts.front());
    parts.push_back(head_gradients);
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].mutable_grad() = parts[i];
  // ReduceGradients writes them where the gradients have been sent.
  if (divided()) part_gradients = gradients.narrow(0, 0, masters.numel());
}

}  // namespace freshet
