#include "rollout/engine/kernels/row_ops.h"

#include <cmath>

#include "rollout/engine/kernels/vector_math.h"

namespace freshet {
namespace {

FRESHET_MULTIARCH
float SumOfSquares(const float* x, int64_t size) {
  float lanes[kFloatLanes] = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= size; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) lanes[l] += x[i + l] * x[i + l];
  }
  for (int64_t l = 0; i < size; ++i, ++l) lanes[l] += x[i] * x[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

FRESHET_MULTIARCH
void Scale(const float* x, const float* weight, float factor, int64_t size, float* out) {
  for (int64_t i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

}  // namespace

void RmsNormRow(const float* x, const float* weight, int64_t size, double eps, float* out) {
  const double mean = SumOfSquares(x, size) / static_cast<double>(size);
  Scale(x, weight, static_cast<float>(1.0 / std::sqrt(mean + eps)), size, out);
}

FRESHET_MULTIARCH
void RopeHead(float* head, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = a * cos[i] - b * sin[i];
    head[half + i] = b * cos[i] + a * sin[i];
  }
}

FRESHET_MULTIARCH
void SwiGluRow(const float* gate_up, int64_t size, float* out) {
  for (int64_t i = 0; i < size; ++i) {
    const float gate = gate_up[i];
    // sigmoid(g) = 1 / (1 + e^-|g|), or e^-|g| times that.
    const float e = ExpNonPositive(gate < 0 ? gate : -gate);
    const float numerator = gate < 0 ? e : 1.0F;
    out[i] = gate * (numerator / (1.0F + e)) * gate_up[size + i];
  }
}

FRESHET_MULTIARCH
void AddScaledRow(const float* from, float factor, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] += from[i] * factor;
}

}  // namespace freshet
