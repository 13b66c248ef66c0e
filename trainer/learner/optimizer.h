#ifndef FRESHET_TRAINER_LEARNER_OPTIMIZER_H_
#define FRESHET_TRAINER_LEARNER_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "model/torch.h"
#include "trainer/learner/shard_layout.h"

namespace freshet {

struct AdamWOptions {
  double beta1 = 0.9;         // [0, 1)
  double beta2 = 0.999;       // [0, 1)
  double epsilon = 1e-8;      // > 0
  double weight_decay = 0.0;  // [0, 10]
  // Gradients are scaled so that their global L2 norm is at most this; 0: no limit.
  double grad_clip_norm = 1.0;
};

// Flat, fp32, of the size of the arena or of a rank's state.
struct AdamWState {
  int64_t step = 0;  // number of updates
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;  // non-negative
};

struct StepReport {
  double grad_norm = 0;   // global L2 norm before clipping
  double clip_scale = 1;  // factor applied to the gradients
};

// FAILED_PRECONDITION: a gradient of `range` is not finite after `steps` updates.
absl::Status NotFinite(const ParameterRange& range, int64_t steps);

// AdamW (arXiv:1711.05101, algorithm 2) on the fp32 master parameters of a flat arena, or of a
// rank's state (shard_layout.h), in place:
//   g = clip_scale * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
// The decay is scaled by lr, as in PyTorch, and applies to ranges that decay. Elements outside of
// the ranges are not changed. Results do not depend on the number of threads. Not thread-safe.
class AdamW {
 public:
  // `ranges` are disjoint and ascending; `arena_size` is that of all tensors, which are on
  // `device`. Continues from `state`, whose tensors it takes, or without them from moments of 0.
  // Returns INVALID_ARGUMENT for an option outside its range, or as SetState.
  static absl::StatusOr<AdamW> Create(std::vector<ParameterRange> ranges, int64_t arena_size,
                                      const AdamWOptions& options, at::Device device = at::kCPU,
                                      AdamWState state = {});

  // Global L2 norm of `gradients`, which is flat. Returns FAILED_PRECONDITION, naming the first
  // such parameter, if a gradient is not finite.
  absl::StatusOr<double> GradNorm(const at::Tensor& gradients, ThreadPool& pool) const;

  // Where ranks divide the state: sums of squares of this rank's gradients, one for each range of
  // at most 64 Ki elements, to the sum over all ranks. Not finite ones are an error.
  using AddSquares = std::function<absl::StatusOr<double>(const std::vector<double>& squares)>;

  // One update of `values` with learning rate `learning_rate` (finite, >= 0). Writes the new values
  // also to `rounded`, a flat bf16 arena, if it is defined. May scale `gradients`.
  // Returns:
  //   OK: updated.
  //   INVALID_ARGUMENT: a bad learning rate; nothing has changed.
  //   FAILED_PRECONDITION: a gradient is not finite (as GradNorm); nothing has changed.
  //   An error of `add_squares`; nothing has changed.
  absl::StatusOr<StepReport> Step(double learning_rate, const at::Tensor& gradients,
                                  const at::Tensor& values, const at::Tensor& rounded,
                                  ThreadPool& pool, const AddSquares& add_squares = nullptr);

  // The state, sharing memory with this object: clone what must outlive the next Step.
  AdamWState GetState() const { return {step_, exp_avg_, exp_avg_sq_}; }

  // Copies `state` to continue from it. Returns INVALID_ARGUMENT, with nothing changed, unless
  // moments are flat, fp32 and finite, exp_avg_sq >= 0, and step >= 0.
  absl::Status SetState(const AdamWState& state);

  int64_t step() const { return step_; }

 private:
  AdamW(std::vector<ParameterRange> ranges, int64_t arena_size, const AdamWOptions& options,
        AdamWState state);
  std::vector<double> Squares(const at::Tensor& gradients, ThreadPool& pool) const;

  std::vector<ParameterRange> ranges_;
  std::vector<ParameterRange> pieces_;  // the ranges, cut to what a thread takes at a time
  AdamWOptions options_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  int64_t step_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_OPTIMIZER_H_
