#ifndef FRESHET_TRAINER_LEARNER_MICROBATCHES_H_
#define FRESHET_TRAINER_LEARNER_MICROBATCHES_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "model/memory_use.h"
#include "model/torch.h"
#include "trainer/learner/microbatch_sizes.h"

namespace freshet {

// Converts an exception thrown by LibTorch. RESOURCE_EXHAUSTED: there is too little memory.
// INTERNAL: any other.
absl::Status TorchError(const std::exception& error);

// Computes microbatches on several threads, each of which uses one LibTorch thread. Called by one
// thread at a time.
class Microbatches {
 public:
  // What a microbatch of `tokens` tokens needs memory for.
  using Use = std::function<MemoryUse(int64_t tokens)>;

  // `leaves`: the parameters whose gradients are computed; all have one. Throws std::system_error
  // if threads cannot start.
  Microbatches(int threads, int64_t max_tokens, std::vector<at::Tensor> leaves, Use use);

  int threads() const { return pool_.threads(); }
  ThreadPool& pool() { return pool_; }

  // Calls `task` for every microbatch; `tokens` are their sizes. LibTorch's errors as TorchError.
  // Returns the error of the first microbatch that has one; later ones may not have been called.
  absl::Status ForEach(const std::vector<int64_t>& tokens,
                       absl::FunctionRef<absl::Status(size_t microbatch)> task);

  // The same for a `task` that computes tensors. `take` gets them in the order of the microbatches,
  // on the caller's thread. `may_add`: those of all earlier microbatches have been taken, and no
  // other task may add, so this one may add to a sum itself.
  using Task =
      absl::FunctionRef<absl::StatusOr<std::vector<at::Tensor>>(size_t microbatch, bool may_add)>;
  absl::Status ForEachInOrder(const std::vector<int64_t>& tokens, Task task,
                              absl::FunctionRef<void(const std::vector<at::Tensor>&)> take);

  // Adds the gradients of the losses that `loss` computes, as ForEach calls it, to those of the
  // leaves. The sum has the order of the microbatches, whatever the number of threads. `may_add`:
  // the backward pass may add to a leaf's gradient itself. On failure the gradients are
  // unspecified.
  absl::Status AddGradients(
      const std::vector<int64_t>& tokens,
      absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t microbatch, bool may_add)> loss);

 private:
  absl::Status ForWave(const std::vector<int64_t>& tokens, size_t first, size_t end,
                       absl::FunctionRef<absl::Status(size_t microbatch)> task);

  int64_t max_tokens_;
  std::vector<at::Tensor> leaves_;
  const Use use_;
  ThreadPool pool_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_MICROBATCHES_H_
