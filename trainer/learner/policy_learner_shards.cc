#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/tensor_convert.h"
#include "trainer/learner/block_exchange.h"
#include "trainer/learner/blockwise_pass.h"
#include "trainer/learner/learner_snapshot.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/policy_learner_state.h"
#include "weights/transfer_time.h"

namespace freshet {

bool PolicyLearner::divided() const { return state_->divided(); }

// Rank 0 sends every block of its state to all ranks, and each keeps its part.
absl::Status PolicyLearner::DivideState() {
  if (state_->background == nullptr) {
    return FailedPrecondition("ranks that divide the state need a second group");
  }
  const int rank = state_->ranks->rank();
  ShardLayout divided(state_->layout, state_->ranks->size());
  FRESHET_ASSIGN_OR_RETURN(const SyncFacts facts, ReceiveFacts());
  using ReadBlock = absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t block)>;
  const auto scatter = [&](const ReadBlock& read,
                           at::ScalarType type) -> absl::StatusOr<at::Tensor> {
    const at::TensorOptions kind = at::TensorOptions(state_->device).dtype(type);
    at::Tensor part = at::empty({divided.StateSize(rank)}, kind);
    for (size_t b = 0; b < divided.blocks().size(); ++b) {
      const ShardLayout::Block& block = divided.blocks()[b];
      at::Tensor numbers;
      if (rank == 0) {
        FRESHET_ASSIGN_OR_RETURN(numbers, read(b));
        numbers = numbers.to(kind);
      } else {
        numbers = at::empty({block.size}, kind);
      }
      FRESHET_RETURN_IF_ERROR(Receive(BytesOf(numbers)));
      const ShardLayout::Part own = divided.PartOf(rank, b);
      part.narrow(0, own.place, own.size)
          .copy_(numbers.narrow(0, own.begin - block.begin, own.size));
    }
    return part;
  };
  const StateParts held = rank == 0 && state_->files == nullptr ? state_->Columns() : StateParts();
  const auto column = [&](StateColumn which) {
    return scatter(
        [&](size_t b) -> absl::StatusOr<at::Tensor> {
          if (state_->files != nullptr) return state_->files->Read(which, b);
          const ShardLayout::Block& block = divided.blocks()[b];
          return held.at(static_cast<size_t>(which)).narrow(0, block.begin, block.size);
        },
        at::kFloat);
  };
  const auto reference_block = [&](size_t b) -> absl::StatusOr<at::Tensor> {
    if (state_->reference_files != nullptr) {
      return state_->reference_files->Read(StateColumn::kMasters, b);
    }
    const ShardLayout::Block& block = divided.blocks()[b];
    return state_->reference.narrow(0, block.begin, block.size);
  };
  const auto copy = [&](at::Tensor whole, StateFiles* files) -> absl::StatusOr<at::Tensor> {
    if (rank == 0 && files != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(whole, state_->ReadWeights(*files));
      whole = whole.to(state_->device);
    }
    if (rank != 0) {
      whole = at::empty({state_->layout.num_elements},
                        at::TensorOptions(state_->device).dtype(state_->type()));
    }
    FRESHET_RETURN_IF_ERROR(Receive(BytesOf(whole)));
    return whole;
  };
  const bool divides_weights = state_->options.sharding == Sharding::kFull;
  State::Held part;
  part.optimizer.step = facts.optimizer_steps;
  FRESHET_ASSIGN_OR_RETURN(part.masters, column(StateColumn::kMasters));
  FRESHET_ASSIGN_OR_RETURN(part.optimizer.exp_avg, column(StateColumn::kExpAvg));
  FRESHET_ASSIGN_OR_RETURN(part.optimizer.exp_avg_sq, column(StateColumn::kExpAvgSq));
  if (facts.has_reference != 0) {
    FRESHET_ASSIGN_OR_RETURN(
        part.reference, divides_weights ? scatter(reference_block, state_->type())
                                        : copy(state_->reference, state_->reference_files.get()));
  }
  at::Tensor whole;
  if (!divides_weights) {
    FRESHET_ASSIGN_OR_RETURN(whole, copy(state_->weights, state_->files.get()));
  }
  FRESHET_RETURN_IF_ERROR(state_->ranks->Barrier(kShareTimeout));
  state_->AwaitLoans();
  return state_->HoldPart(std::move(divided), rank, std::move(part), std::move(whole));
}

absl::Status PolicyLearner::State::GatherParts(const at::Tensor& part,
                                               const at::Tensor& whole) const {
  on_phase(RankPhase::kGathering);
  FRESHET_RETURN_IF_ERROR(GatherBlocks(*ranks, shards, part, whole, kShareTimeout));
  on_phase(RankPhase::kIdle);
  return absl::OkStatus();
}

absl::Status PolicyLearner::SendWeights() try {
  return state_->GatherParts(state_->part_weights(), {});
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::StatusOr<std::shared_ptr<const LearnerState>> PolicyLearner::SnapshotOfRanks() const try {
  State& state = *state_;
  state.AwaitSnapshot();
  FRESHET_ASSIGN_OR_RETURN(LentParts parts, state.LendParts());
  state.snapshot_ended = std::make_shared<Notification>();
  const std::shared_ptr<GatheredBlocks> blocks(
      new GatheredBlocks(*state.background, *state.ranks, state.shards, std::move(parts)),
      [ended = state.snapshot_ended](GatheredBlocks* gone) {
        delete gone;
        ended->Notify();
      });
  state.snapshot = blocks;
  return SnapshotOf({state.layout, state.parameters, state.optimizer->step()}, blocks);
} catch (const std::exception& error) {
  const absl::Status status = TorchError(error);
  state_->ranks->Abort(Message(status));  // the others would wait for its reads
  return status;
}

absl::Status PolicyLearner::SendSnapshot() try {
  State& state = *state_;
  state.AwaitSnapshot();
  FRESHET_ASSIGN_OR_RETURN(LentParts lent, state.LendParts());
  state.serving = std::thread([parts = std::optional(std::move(lent)), layout = state.shards,
                               over = state.background, group = state.ranks]() mutable {
    absl::Status served;
    try {
      parts->Copy();
      served = ServeBlocks(*over, layout, *parts);
    } catch (const std::exception& error) {
      served = TorchError(error);
      over->Abort(Message(served));
    }
    parts.reset();
    if (!served.ok()) group->Abort(Message(served));
  });
  return absl::OkStatus();
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::Status PolicyLearner::SendState() try {
  state_->AwaitSnapshot();
  for (const at::Tensor& part : state_->Columns()) {
    FRESHET_RETURN_IF_ERROR(state_->GatherParts(part, {}));
  }
  const bool sends = state_->divides_weights() && state_->reference.defined();
  return sends ? state_->GatherParts(state_->reference, {}) : absl::OkStatus();
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::Status PolicyLearner::HoldWholeState() try {
  const at::NoGradGuard no_grad;
  const AdamWState parts = state_->optimizer->GetState();
  const auto gather = [&](const at::Tensor& part) -> absl::StatusOr<at::Tensor> {
    at::Tensor whole = at::empty({state_->layout.num_elements}, part.options());
    FRESHET_RETURN_IF_ERROR(state_->GatherParts(part, whole));
    return whole;
  };
  state_->AwaitSnapshot();
  State::Held whole;
  whole.optimizer.step = parts.step;
  whole.reference = state_->reference;
  FRESHET_ASSIGN_OR_RETURN(whole.masters, gather(state_->masters));
  FRESHET_ASSIGN_OR_RETURN(whole.optimizer.exp_avg, gather(parts.exp_avg));
  FRESHET_ASSIGN_OR_RETURN(whole.optimizer.exp_avg_sq, gather(parts.exp_avg_sq));
  if (state_->divides_weights() && whole.reference.defined()) {
    FRESHET_ASSIGN_OR_RETURN(whole.reference, gather(whole.reference));
  }
  state_->AwaitLoans();
  return state_->HoldWhole(std::move(whole));
} catch (const std::exception& error) {
  return TorchError(error);
}

// The parts are those of a divided state, also where the ranks hold all weights.
std::vector<std::vector<ByteRange>> PolicyLearner::ShardRanges() const {
  const ShardLayout divided(state_->layout, state_->ranks->size());
  const auto element = static_cast<int64_t>(at::elementSize(state_->type()));
  std::vector<std::vector<ByteRange>> ranges(static_cast<size_t>(divided.ranks()));
  for (size_t rank = 0; rank < ranges.size(); ++rank) {
    for (size_t b = 0; b < divided.blocks().size(); ++b) {
      const ShardLayout::Part part = divided.PartOf(static_cast<int>(rank), b);
      if (part.size > 0) ranges[rank].push_back({part.begin * element, part.size * element});
    }
  }
  return ranges;
}

absl::Status PolicyLearner::CopyShard(const std::vector<ByteRange>& ranges,
                                      std::span<std::byte> shard) const try {
  const bool is_part = state_->divides_weights();
  const auto element = static_cast<int64_t>(at::elementSize(state_->type()));
  int64_t place = 0;
  for (const ByteRange& range : ranges) {
    const at::Tensor& from = is_part ? state_->part_weights() : state_->weights;
    const int64_t begin = is_part ? place : range.first;
    at::from_blob(shard.data() + place, {range.size / element}, state_->type())
        .copy_(from.narrow(0, begin / element, range.size / element));
    place += range.size;
  }
  return absl::OkStatus();
} catch (const std::exception& error) {
  return TorchError(error);
}

// This rank's part is written to the beginning of the gradients, over blocks that have been
// added up: the parts before a block are not longer than the blocks before it.
absl::Status PolicyLearner::ReduceGradients() {
  state_->on_phase(RankPhase::kReducing);
  const std::vector<ShardLayout::Block>& blocks = state_->shards.blocks();
  for (size_t b = 0; b < blocks.size(); ++b) {
    const int64_t padded = blocks[b].part * state_->shards.ranks();
    at::Tensor sums = state_->gradients.narrow(0, blocks[b].begin, blocks[b].size);
    if (padded != blocks[b].size) sums = at::constant_pad_nd(sums, {0, padded - blocks[b].size});
    FRESHET_RETURN_IF_ERROR(ReduceBlock(*state_->ranks, state_->shards, b, sums,
                                        state_->part_gradients, kShareTimeout));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PolicyLearner::AddSquares(const std::vector<double>& own) const {
  const std::vector<ShardLayout::Piece>& pieces = state_->pieces;
  const auto ranks = static_cast<size_t>(state_->shards.ranks());
  std::vector<size_t> counts(ranks, 0);
  for (const ShardLayout::Piece& piece : pieces) ++counts[static_cast<size_t>(piece.rank)];
  const size_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<double> mine = own;
  mine.resize(most);
  std::vector<double> all(most * ranks);
  FRESHET_RETURN_IF_ERROR(state_->ranks->AllGather(
      std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), kShareTimeout));
  std::vector<size_t> next(ranks, 0);
  double sum = 0;
  for (const ShardLayout::Piece& piece : pieces) {
    const auto rank = static_cast<size_t>(piece.rank);
    const double squares = all[rank * most + next[rank]++];
    if (!std::isfinite(squares)) return NotFinite(piece.range, state_->optimizer->step());
    sum += squares;
  }
  return sum;
}

std::vector<PolicyLearner::Run> PolicyLearner::State::MakeRuns(const Minibatch& share,
                                                               const Runs& split) const {
  std::vector<Run> runs;
  runs.reserve(split.size());
  for (const std::vector<size_t>& chosen : split.trees) runs.push_back(MakeRun(share, chosen));
  return runs;
}

BlockwisePass PolicyLearner::MakePass(const std::vector<Run>& runs,
                                      const std::vector<int64_t>& tokens) const {
  std::vector<PackedBatch> batches;
  batches.reserve(runs.size());
  for (const Run& run : runs) batches.push_back(run.batch);
  const auto on_wait = [this](bool waits) {
    state_->on_phase(waits ? RankPhase::kGathering : RankPhase::kComputing);
  };
  return BlockwisePass({state_->model, state_->layout, state_->shards, *state_->ranks,
                        *state_->microbatches, state_->device, on_wait, kShareTimeout},
                       batches, tokens, state_->type());
}

absl::Status PolicyLearner::ComputeProximalBlockwise(Minibatch& share) const {
  const Runs split = state_->Split(share.rows.trees);
  const std::vector<Run> runs = state_->MakeRuns(share, split);
  BlockwisePass pass = MakePass(runs, split.tokens);
  FRESHET_RETURN_IF_ERROR(pass.Logprobs(state_->part_weights(), state_->temperature(),
                                        Entropy::kNone, [&](size_t run, const TargetLogprobs& out) {
                                          AssignProximal(split.trees[run], ToFloats(out.logprobs_M),
                                                         share.rows);
                                          return absl::OkStatus();
                                        }));
  return pass.failed();
}

absl::StatusOr<StepSums> PolicyLearner::AddGradientsBlockwise(const Minibatch& share) try {
  const Runs split = state_->Split(share.rows.trees);
  state_->NoteBatch(split);
  const std::vector<Run> runs = state_->MakeRuns(share, split);
  BlockwisePass pass = MakePass(runs, split.tokens);
  std::vector<at::Tensor> reference(runs.size());
  if (state_->NeedsReference()) {
    FRESHET_RETURN_IF_ERROR(pass.Logprobs(state_->reference, state_->temperature(), Entropy::kNone,
                                          [&](size_t run, const TargetLogprobs& out) {
                                            reference[run] = out.logprobs_M;
                                            return absl::OkStatus();
                                          }));
  }
  std::vector<StepSums> sums(runs.size());
  FRESHET_RETURN_IF_ERROR(pass.AddGradients(
      state_->part_weights(), state_->part_gradients, state_->temperature(), state_->LossEntropy(),
      [&](size_t run, const TargetLogprobs& out) -> absl::StatusOr<at::Tensor> {
        FRESHET_ASSIGN_OR_RETURN(State::RunLoss loss,
                                 state_->LossOf(runs[run], share, out, reference[run]));
        sums[run] = SumsOf(loss.output, loss.model_flops);
        return std::move(loss.output.loss);
      }));
  FRESHET_RETURN_IF_ERROR(pass.failed());
  StepSums total;
  for (const StepSums& part : sums) total.Add(part);
  return total;
} catch (const std::exception& error) {
  const absl::Status status = TorchError(error);
  state_->ranks->Abort(Message(status));  // the others would wait for this rank's parts
  return status;
}

}  // namespace freshet
