#include "trainer/learner/block_exchange.h"

#include <exception>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/tensor_convert.h"
#include "trainer/learner/microbatches.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

constexpr absl::Duration kWaitSlice = absl::Seconds(1);

std::span<float> FloatsOf(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// All of it may pass through rank 0.
absl::Duration TimeFor(const Communicator& ranks, const at::Tensor& block) {
  return TransferTime(static_cast<int64_t>(block.nbytes()) * ranks.size());
}

// This rank's part of a block of `state`, followed by zeros to the length of a part.
at::Tensor PaddedPart(const ShardLayout& layout, int rank, size_t block, const at::Tensor& state) {
  const ShardLayout::Part part = layout.PartOf(rank, block);
  const int64_t length = layout.blocks()[block].part;
  const at::Tensor own = state.narrow(0, part.place, part.size);
  if (part.size == length) return own;
  at::Tensor padded = at::zeros({length}, state.options());
  padded.narrow(0, 0, part.size).copy_(own);
  return padded;
}

// A block from the parts of all ranks, on all, with zeros to the length of all parts.
absl::StatusOr<at::Tensor> AllGatherBlock(Communicator& ranks, const ShardLayout& layout,
                                          size_t block, const at::Tensor& state,
                                          absl::Duration patience) {
  const at::Tensor own = PaddedPart(layout, ranks.rank(), block, state);
  at::Tensor all = at::empty({own.numel() * ranks.size()}, state.options());
  FRESHET_RETURN_IF_ERROR(
      ranks.AllGather(BytesOf(own), BytesOf(all), patience + TimeFor(ranks, all)));
  return all;
}

}  // namespace

absl::StatusOr<at::Tensor> GatherBlock(Communicator& ranks, const ShardLayout& layout, size_t block,
                                       const at::Tensor& state, at::Device device,
                                       absl::Duration patience) try {
  const at::NoGradGuard no_grad;
  const at::Tensor own = PaddedPart(layout, ranks.rank(), block, state).to(device);
  const absl::Duration timeout =
      patience + TransferTime(static_cast<int64_t>(own.nbytes()) * ranks.size());
  if (ranks.rank() != 0) {
    FRESHET_RETURN_IF_ERROR(ranks.Gather(BytesOf(own), {}, timeout));
    return at::Tensor();
  }
  const at::Tensor all = at::empty({own.numel() * ranks.size()}, own.options());
  FRESHET_RETURN_IF_ERROR(ranks.Gather(BytesOf(own), BytesOf(all), timeout));
  return all.narrow(0, 0, layout.blocks()[block].size);
} catch (const std::exception& error) {
  const absl::Status status = TorchError(error);
  ranks.Abort(Message(status));  // the others would wait
  return status;
}

absl::Status GatherBlocks(Communicator& ranks, const ShardLayout& layout, const at::Tensor& state,
                          const at::Tensor& whole, absl::Duration patience) {
  const at::NoGradGuard no_grad;
  const std::vector<ShardLayout::Block>& blocks = layout.blocks();
  for (size_t b = 0; b < blocks.size(); ++b) {
    FRESHET_ASSIGN_OR_RETURN(const at::Tensor block,
                             GatherBlock(ranks, layout, b, state, state.device(), patience));
    if (block.defined()) whole.narrow(0, blocks[b].begin, blocks[b].size).copy_(block);
  }
  return absl::OkStatus();
}

absl::Status AllGatherBlocks(Communicator& ranks, const ShardLayout& layout,
                             const at::Tensor& state, const at::Tensor& whole,
                             absl::Duration patience) try {
  const at::NoGradGuard no_grad;
  const std::vector<ShardLayout::Block>& blocks = layout.blocks();
  for (size_t b = 0; b < blocks.size(); ++b) {
    FRESHET_ASSIGN_OR_RETURN(const at::Tensor block,
                             AllGatherBlock(ranks, layout, b, state, patience));
    whole.narrow(0, blocks[b].begin, blocks[b].size).copy_(block.narrow(0, 0, blocks[b].size));
  }
  return absl::OkStatus();
} catch (const std::exception& error) {
  const absl::Status status = TorchError(error);
  ranks.Abort(Message(status));  // the others would wait
  return status;
}

absl::Status ReduceBlock(Communicator& ranks, const ShardLayout& layout, size_t block,
                         const at::Tensor& sums, const at::Tensor& state, absl::Duration patience) {
  const ShardLayout::Part part = layout.PartOf(ranks.rank(), block);
  const at::Tensor own = at::empty({layout.blocks()[block].part}, state.options());
  FRESHET_RETURN_IF_ERROR(
      ranks.ReduceScatter(FloatsOf(sums), FloatsOf(own), patience + TimeFor(ranks, sums)));
  state.narrow(0, part.place, part.size).copy_(own.narrow(0, 0, part.size));
  return absl::OkStatus();
}

BlockExchange::BlockExchange(Communicator& ranks, const ShardLayout& layout, at::Tensor state,
                             std::vector<size_t> gathered, absl::Duration patience)
    : ranks_(ranks),
      layout_(layout),
      state_(std::move(state)),
      gathered_(std::move(gathered)),
      patience_(patience) {
  GatherNext();
  GatherNext();
  thread_ = std::thread([this] { Run(); });
}

BlockExchange::~BlockExchange() {
  {
    const MutexLock lock(mu_);
    operations_.clear();
    ended_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void BlockExchange::Run() {
  const at::NoGradGuard no_grad;
  while (const Operation operation = Next()) {
    absl::Status status;
    try {
      status = operation();
    } catch (const std::exception& error) {
      status = TorchError(error);
      ranks_.Abort(Message(status));  // the others would wait
    }
    const MutexLock lock(mu_);
    busy_ = false;
    error_.Update(status);
    if (!error_.ok()) operations_.clear();
    changed_.NotifyAll();
  }
}

// Null: the end.
BlockExchange::Operation BlockExchange::Next() {
  const MutexLock lock(mu_);
  while (operations_.empty() && !ended_) changed_.WaitFor(mu_, kWaitSlice);
  if (operations_.empty()) return nullptr;
  Operation operation = std::move(operations_.front());
  operations_.pop_front();
  busy_ = true;
  return operation;
}

void BlockExchange::Enqueue(Operation operation) {
  if (!error_.ok()) return;
  operations_.push_back(std::move(operation));
  changed_.NotifyAll();
}

void BlockExchange::GatherNext() {
  if (num_requested_ == gathered_.size()) return;
  const MutexLock lock(mu_);
  Enqueue([this, block = gathered_[num_requested_++]]() -> absl::Status {
    FRESHET_ASSIGN_OR_RETURN(at::Tensor gathered,
                             AllGatherBlock(ranks_, layout_, block, state_, patience_));
    const MutexLock finished(mu_);
    blocks_.push_back(std::move(gathered));
    return absl::OkStatus();
  });
}

absl::StatusOr<at::Tensor> BlockExchange::Take(const std::function<void(bool)>& on_wait) {
  const bool waits = !HasBlock();
  if (waits) on_wait(true);
  absl::StatusOr<at::Tensor> block = AwaitBlock();
  if (waits) on_wait(false);
  if (block.ok()) GatherNext();
  return block;
}

absl::StatusOr<at::Tensor> BlockExchange::AwaitBlock() {
  const MutexLock lock(mu_);
  // The operations have deadlines.
  while (blocks_.empty() && error_.ok()) changed_.WaitFor(mu_, kWaitSlice);
  if (!error_.ok()) return error_;
  at::Tensor block = std::move(blocks_.front());
  blocks_.pop_front();
  return block;
}

bool BlockExchange::HasBlock() {
  const MutexLock lock(mu_);
  return !blocks_.empty() || !error_.ok();
}

void BlockExchange::Reduce(size_t block, at::Tensor sums, at::Tensor state) {
  const MutexLock lock(mu_);
  while (num_sums_ > 0 && error_.ok()) changed_.WaitFor(mu_, kWaitSlice);
  ++num_sums_;
  Enqueue([this, block, sums = std::move(sums), state = std::move(state)]() -> absl::Status {
    FRESHET_RETURN_IF_ERROR(ReduceBlock(ranks_, layout_, block, sums, state, patience_));
    const MutexLock finished(mu_);
    --num_sums_;
    return absl::OkStatus();
  });
}

absl::Status BlockExchange::Finish(const std::function<void(bool)>& on_wait) {
  on_wait(true);
  absl::Status status;
  {
    const MutexLock lock(mu_);
    while ((busy_ || !operations_.empty()) && error_.ok()) changed_.WaitFor(mu_, kWaitSlice);
    status = error_;
  }
  on_wait(false);
  return status;
}

}  // namespace freshet
