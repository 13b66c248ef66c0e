#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_ROW_OPS_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_ROW_OPS_H_

#include <cstdint>

namespace freshet {

// Operations of a decoder layer on one token's row of fp32 numbers. The arithmetic has a fixed
// order. Thread-safe.

// out = x / rms(x) * weight; `out` may be `x`.
void RmsNormRow(const float* x, const float* weight, int64_t size, double eps, float* out);

// Rotates the pairs (i, i + half) of one head in place. `cos` and `sin`: [half] of its position.
void RopeHead(float* head, const float* cos, const float* sin, int64_t half);

// out[i] = silu(gate_up[i]) * gate_up[size + i] for i < size; `out` may be `gate_up`.
void SwiGluRow(const float* gate_up, int64_t size, float* out);

// to += from * factor.
void AddScaledRow(const float* from, float factor, int64_t size, float* to);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KERNELS_ROW_OPS_H_
