#ifndef FRESHET_TRAINER_LEARNER_ADAMW_KERNEL_H_
#define FRESHET_TRAINER_LEARNER_ADAMW_KERNEL_H_

#include <cstdint>

namespace freshet {

// Constants of one update; see AdamW.
struct AdamWFactors {
  float gradient_scale = 1;
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 1;         // 1 - beta1, rounded once
  float rest2 = 1;         // 1 - beta2
  float keep = 1;          // 1 - learning_rate * weight_decay
  float rate = 0;          // learning_rate / (1 - beta1^t)
  float inverse_root = 1;  // 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
};

// Updates `size` elements. `rounded`, the new values as the bits of bf16, may be null.
void AdamWUpdate(const AdamWFactors& factors, int64_t size, const float* gradient, float* value,
                 float* exp_avg, float* exp_avg_sq, uint16_t* rounded);

// Sum of squares in double, which no fp32 number overflows.
double SumOfSquaresInDouble(const float* values, int64_t size);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_ADAMW_KERNEL_H_
