#include "trainer/learner/adamw_kernel.h"

#include <cmath>

#include "model/kernels/bf16.h"
#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

// Pointers do not overlap.
FRESHET_MULTIARCH
void Update(const AdamWFactors& factors, int64_t size, const float* __restrict gradient,
            float* __restrict value, float* __restrict exp_avg, float* __restrict exp_avg_sq) {
  const AdamWFactors f = factors;
  for (int64_t i = 0; i < size; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = f.beta1 * exp_avg[i] + f.rest1 * g;
    const float v = f.beta2 * exp_avg_sq[i] + f.rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    value[i] = value[i] * f.keep - f.rate * m / (std::sqrt(v) * f.inverse_root + f.epsilon);
  }
}

FRESHET_MULTIARCH
void Round(const float* __restrict values, int64_t size, uint16_t* __restrict to) {
  for (int64_t i = 0; i < size; ++i) to[i] = RoundToBf16(values[i]);
}

}  // namespace

void AdamWUpdate(const AdamWFactors& factors, int64_t size, const float* gradient, float* value,
                 float* exp_avg, float* exp_avg_sq, uint16_t* rounded) {
  constexpr int64_t kBlock = 1024;  // values stay in the L1 cache until they are rounded
  for (int64_t first = 0; first < size; first += kBlock) {
    const int64_t count = size - first < kBlock ? size - first : kBlock;
    Update(factors, count, gradient + first, value + first, exp_avg + first, exp_avg_sq + first);
    if (rounded != nullptr) Round(value + first, count, rounded + first);
  }
}

FRESHET_MULTIARCH
double SumOfSquaresInDouble(const float* values, int64_t size) {
  double lanes[kFloatLanes] = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= size; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) {
      const double value = values[i + l];
      lanes[l] += value * value;
    }
  }
  for (int64_t l = 0; i < size; ++i, ++l) lanes[l] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace freshet
