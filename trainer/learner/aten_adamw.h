#ifndef FRESHET_TRAINER_LEARNER_ATEN_ADAMW_H_
#define FRESHET_TRAINER_LEARNER_ATEN_ADAMW_H_

#include <cstdint>
#include <vector>

#include "model/torch.h"
#include "trainer/learner/optimizer.h"

namespace freshet {

// AdamW's operations with ATen, on any device.

// The L2 norm of a flat fp32 tensor, computed in double.
double AtenNorm(const at::Tensor& flat);

// The sum of the squares of each range, in double.
std::vector<double> AtenSquares(const at::Tensor& flat, const std::vector<ParameterRange>& ranges);

// Flat tensors of one size. `rounded` may be undefined.
struct AdamWTensors {
  at::Tensor values, gradients, exp_avg, exp_avg_sq, rounded;
};

// Update `step` (from 1 on) of the elements in `ranges`, with gradients times `gradient_scale`
// (> 0), by which `gradients` may be multiplied.
void AtenAdamWUpdate(const AdamWOptions& options, const std::vector<ParameterRange>& ranges,
                     int64_t step, double learning_rate, double gradient_scale,
                     const AdamWTensors& tensors);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_ATEN_ADAMW_H_
