#ifndef FRESHET_TRAINER_LEARNER_OPTIMIZER_H_
#define FRESHET_TRAINER_LEARNER_OPTIMIZER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/torch.h"

namespace freshet {

struct AdamWOptions {
  double beta1 = 0.9;         // [0, 1)
  double beta2 = 0.999;       // [0, 1)
  double epsilon = 1e-8;      // > 0
  double weight_decay = 0.0;  // [0, 10]
  // Gradients are scaled so that their global L2 norm is at most this; 0: no limit.
  double grad_clip_norm = 1.0;
};

// A master parameter: a contiguous fp32 leaf that requires a gradient.
struct TrainedParameter {
  std::string name;  // unique
  at::Tensor value;
};

struct AdamWMoments {
  at::Tensor exp_avg;     // fp32, the parameter's shape
  at::Tensor exp_avg_sq;  // fp32, the parameter's shape, non-negative
};

struct AdamWState {
  int64_t step = 0;                             // number of updates
  std::map<std::string, AdamWMoments> moments;  // by parameter name
};

struct StepReport {
  double grad_norm = 0;   // global L2 norm before clipping
  double clip_scale = 1;  // factor applied to the gradients
};

// AdamW (arXiv:1711.05101, algorithm 2) on fp32 master parameters, in place:
//   g = clip_scale * .grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
// The decay is scaled by lr, as in PyTorch, and applies to parameters with two or more dimensions,
// so not to norms and biases. A missing gradient counts as 0. Bitwise deterministic
// for a fixed thread count. Not thread-safe.
class AdamW {
 public:
  // Moments start at 0. Returns INVALID_ARGUMENT for an option outside its range.
  static absl::StatusOr<AdamW> Create(std::vector<TrainedParameter> parameters,
                                      const AdamWOptions& options);

  void ZeroGrad();

  // Global L2 norm of the gradients. Returns FAILED_PRECONDITION, naming the first such parameter,
  // if a gradient is not finite.
  absl::StatusOr<double> GradNorm() const;

  // One update with learning rate `learning_rate` (finite, >= 0). Leaves the clipped gradients in
  // .grad.
  // Returns:
  //   OK: updated.
  //   INVALID_ARGUMENT: a bad learning rate; nothing has changed.
  //   FAILED_PRECONDITION: a gradient is not finite (as GradNorm); nothing has changed.
  absl::StatusOr<StepReport> Step(double learning_rate);

  // The state, sharing memory with this object: clone what must outlive the next Step.
  AdamWState GetState() const;

  // Copies `state` to continue from it. Returns INVALID_ARGUMENT, with nothing changed, unless it
  // has exactly this object's parameters with their shapes, fp32, finite, exp_avg_sq >= 0, and 0 <=
  // step < 2^24 (the kernel counts in fp32).
  absl::Status SetState(const AdamWState& state);

  int64_t step() const { return step_; }

 private:
  // Parameters with the same weight decay, as lists for the fused kernel.
  struct Group {
    double weight_decay = 0;
    std::vector<size_t> members;  // indices into parameters_
  };

  AdamW(std::vector<TrainedParameter> parameters, const AdamWOptions& options);

  std::vector<TrainedParameter> parameters_;
  AdamWOptions options_;
  std::vector<AdamWMoments> moments_;  // by parameter
  std::vector<Group> groups_;
  int64_t step_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_OPTIMIZER_H_
