#include "trainer/learner/policy_learner_state.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/memory_uses.h"

namespace freshet {
namespace {

AdamWOptions AdamWOptionsOf(const PolicyLearnerOptions& options) {
  return {options.beta1, options.beta2, options.epsilon, options.weight_decay,
          options.grad_clip_norm};
}

}  // namespace

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
  FRESHET_ASSIGN_OR_RETURN(
      AdamW made, AdamW::Create(std::move(own), shards.StateSize(rank), AdamWOptionsOf(options),
                                device, std::move(from)));
  optimizer.emplace(std::move(made));
  return absl::OkStatus();
}

absl::Status PolicyLearner::State::CheckOptimizer() const {
  return AdamW::Create({}, /*arena_size=*/0, AdamWOptionsOf(options), device).status();
}

int PolicyLearner::State::Threads(bool divides) const {
  int64_t largest = divides ? 0 : layout.num_elements;  // gradients that a microbatch has
  for (const ShardLayout::Block& block : shards.blocks()) {
    if (divides) largest = std::max(largest, block.size);
  }
  return MicrobatchThreads(device.is_cpu() ? options.threads : 1, largest);
}

// Needs `weights`, unless they are divided.
void PolicyLearner::State::MakeLeaves() {
  std::vector<at::Tensor> tensors;
  leaves = {};
  if (!divides_weights()) {
    const at::Tensor values =
        options.bf16 ? at::empty({1}, masters.options()).expand({layout.num_elements}) : weights;
    leaves = SeparateHead(ViewWeights(layout, values));
    tensors = Leaves(leaves);
    for (const at::Tensor& leaf : tensors) leaf.set_requires_grad(true);
  }
  microbatches.emplace(Threads(divides_weights()), options.max_tokens_per_microbatch,
                       std::move(tensors),
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
  files = reference_files = nullptr;
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

absl::Status PolicyLearner::State::LoadFiles() {
  if (files == nullptr) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  const auto read = [&](StateColumn column) -> absl::StatusOr<at::Tensor> {
    at::Tensor whole = at::zeros({layout.num_elements}, at::kFloat);
    FRESHET_RETURN_IF_ERROR(ReadColumn(*files, column, shards.blocks(), whole));
    return whole.to(device);
  };
  const auto hold = [&]() -> absl::Status {
    Held held;
    FRESHET_ASSIGN_OR_RETURN(held.masters, read(StateColumn::kMasters));
    if (files->has_moments()) {
      held.optimizer.step = files->optimizer_steps();
      FRESHET_ASSIGN_OR_RETURN(held.optimizer.exp_avg, read(StateColumn::kExpAvg));
      FRESHET_ASSIGN_OR_RETURN(held.optimizer.exp_avg_sq, read(StateColumn::kExpAvgSq));
    }
    held.reference = reference;
    if (reference_files != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(const at::Tensor host, ReadWeights(*reference_files));
      held.reference = host.to(device);
    }
    return HoldWhole(std::move(held));
  };
  FRESHET_RETURN_IF_ERROR(
      WithMemoryFor([this] { return UseOf("weights", options, device); }, hold));
  files = reference_files = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> PolicyLearner::State::ReadWeights(StateFiles& from) const {
  const at::NoGradGuard no_grad;
  at::Tensor whole = at::zeros({layout.num_elements}, type());
  FRESHET_RETURN_IF_ERROR(ReadColumn(from, StateColumn::kMasters, shards.blocks(), whole));
  return whole;
}

StateParts PolicyLearner::State::Columns() const {
  const AdamWState moments = optimizer->GetState();
  return {masters, moments.exp_avg, moments.exp_avg_sq};
}

absl::StatusOr<LentParts> PolicyLearner::State::LendParts() {
  const SnapshotDecision own =
      DecideSnapshot(options, ranks_here * shards.StateSize(ranks->rank()) * kSnapshotBytes,
                     ranks_here * HostTokens());
  // Before any of them copies. A rank that lends waits before its next update, so all must.
  const auto copies = static_cast<std::byte>(own.copies ? 1 : 0);
  std::vector<std::byte> all(static_cast<size_t>(ranks->size()));
  FRESHET_RETURN_IF_ERROR(ranks->AllGather(std::span(&copies, 1), all, kShareTimeout));
  std::string no_copy;
  if (std::ranges::count(all, std::byte{0}) > 0) {
    no_copy = own.copies ? "another rank has no memory for a copy" : own.reason;
  }
  return LentParts(Columns(), Lend(), std::move(no_copy));
}

void PolicyLearner::State::AwaitWritten(Notification& ended) const {
  if (!ended.HasBeenNotified()) on_phase(RankPhase::kSaving);
  while (!ended.WaitFor(kLoanWarning)) {
    FRESHET_LOG(Warning) << "event=waiting reason="
                         << LogQuoted("the weights are being written to a checkpoint");
  }
}

void PolicyLearner::State::AwaitLoans() {
  for (const auto& ended : loans) AwaitWritten(*ended);
  loans.clear();
}

void PolicyLearner::State::AwaitSnapshot() {
  if (snapshot_ended != nullptr) AwaitWritten(*snapshot_ended);
  snapshot_ended = nullptr;
  if (!serving.joinable()) return;
  on_phase(RankPhase::kSaving);
  serving.join();
}

void PolicyLearner::State::AbandonSnapshot() {
  constexpr char kReason[] = "the group of ranks ends";
  const bool is_open = snapshot_ended != nullptr && !snapshot_ended->HasBeenNotified();
  if (is_open || serving.joinable()) background->Abort(kReason);
  if (is_open) {
    if (const auto reading = snapshot.lock()) {
      reading->Detach(kReason);
    } else {  // it is ending
      AwaitWritten(*snapshot_ended);
    }
  }
  snapshot_ended = nullptr;
  if (serving.joinable()) serving.join();
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
