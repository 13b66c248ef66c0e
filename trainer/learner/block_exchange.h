#ifndef FRESHET_TRAINER_LEARNER_BLOCK_EXCHANGE_H_
#define FRESHET_TRAINER_LEARNER_BLOCK_EXCHANGE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "model/torch.h"
#include "trainer/learner/shard_layout.h"

namespace freshet {

// Gathers a block on rank 0 from the parts of all ranks; the others get an undefined tensor.
// `state`: this rank's. `device`: in whose memory `ranks` takes data. `patience`: how long other
// ranks may take to begin. A collective operation, as all below. Errors of Communicator.
absl::StatusOr<at::Tensor> GatherBlock(Communicator& ranks, const ShardLayout& layout, size_t block,
                                       const at::Tensor& state, at::Device device,
                                       absl::Duration patience);

// Gathers all blocks on rank 0, one after the other, into `whole`, of the arena's size; undefined
// on the other ranks.
absl::Status GatherBlocks(Communicator& ranks, const ShardLayout& layout, const at::Tensor& state,
                          const at::Tensor& whole, absl::Duration patience);

// Gathers all blocks on all ranks, into `whole`.
absl::Status AllGatherBlocks(Communicator& ranks, const ShardLayout& layout,
                             const at::Tensor& state, const at::Tensor& whole,
                             absl::Duration patience);

// Adds up `sums`, fp32, a block and zeros to the length of all parts, over all ranks. This rank's
// part of the sum becomes its part of `state`.
absl::Status ReduceBlock(Communicator& ranks, const ShardLayout& layout, size_t block,
                         const at::Tensor& sums, const at::Tensor& state, absl::Duration patience);

// Gathers blocks and adds up gradients on a thread, while the caller computes. The collective
// operations have the order of the calls, which is the same on all ranks. `patience`: how long
// other ranks may take to compute. At most two gathered blocks and one of gradients are held here.
// Used by one thread, which must not use the communicator before Finish.
class BlockExchange {
 public:
  // `gathered`: the blocks that Take will return, in order, with the state whose parts they have.
  BlockExchange(Communicator& ranks, const ShardLayout& layout, at::Tensor state,
                std::vector<size_t> gathered, absl::Duration patience);
  // Without Finish, waits for operations in progress.
  ~BlockExchange();

  // `on_wait` is called with true before these two wait, and with false afterwards. The next
  // gathered block, with zeros to the length of all parts:
  absl::StatusOr<at::Tensor> Take(const std::function<void(bool)>& on_wait);
  // The end of all operations; their first error:
  absl::Status Finish(const std::function<void(bool)>& on_wait);
  // As ReduceBlock, beside the caller's computation.
  void Reduce(size_t block, at::Tensor sums, at::Tensor state);

 private:
  using Operation = std::function<absl::Status()>;
  void Run();
  Operation Next();
  bool HasBlock();
  absl::StatusOr<at::Tensor> AwaitBlock();
  void GatherNext();
  void Enqueue(Operation operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Communicator& ranks_;
  const ShardLayout& layout_;
  const at::Tensor state_;
  const std::vector<size_t> gathered_;
  const absl::Duration patience_;
  size_t num_requested_ = 0;  // of `gathered_`

  Mutex mu_;
  CondVar changed_;
  std::deque<Operation> operations_ ABSL_GUARDED_BY(mu_);
  std::deque<at::Tensor> blocks_ ABSL_GUARDED_BY(mu_);
  int num_sums_ ABSL_GUARDED_BY(mu_) = 0;  // that wait or are added up
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_BLOCK_EXCHANGE_H_
