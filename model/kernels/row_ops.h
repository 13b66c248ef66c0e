#ifndef FRESHET_MODEL_KERNELS_ROW_OPS_H_
#define FRESHET_MODEL_KERNELS_ROW_OPS_H_

#include <cstdint>

namespace freshet {

// Operations of a decoder layer on one token's row of fp32 numbers. The arithmetic has a fixed
// order. Thread-safe.

// out = x / rms(x) * weight; `out` may be `x`. Returns 1 / rms(x).
float RmsNormRow(const float* x, const float* weight, int64_t size, double eps, float* out);
// Gradients from that of the output: dx = inverse * (d * w - x * inverse^2 * mean(d * w * x)), and
// dw += d * x * inverse, where `inverse` is what RmsNormRow returned.
void RmsNormRowGradient(const float* x, const float* weight, float inverse, const float* d,
                        int64_t size, float* dx, float* dw);

// Rotates the pairs (i, i + half) of one head, by the angle of its position or back by it. `cos`
// and `sin`: [half] of the position. `out` may be `head`.
void RopeHead(const float* head, const float* cos, const float* sin, int64_t half, bool back,
              float* out);

// out[i] = silu(gate_up[i]) * gate_up[size + i] for i < size; `out` may be `gate_up`. Numbers are
// fp32 or the bits of bf16; the arithmetic is fp32.
void SwiGluRow(const float* gate_up, int64_t size, float* out);
void SwiGluRow(const uint16_t* gate_up, int64_t size, uint16_t* out);
// The gradient of gate_up from that of the output, `d`. It may replace gate_up.
void SwiGluRowGradient(const float* gate_up, const float* d, int64_t size, float* out);
void SwiGluRowGradient(const uint16_t* gate_up, const uint16_t* d, int64_t size, uint16_t* out);

// to += from * factor.
void AddScaledRow(const float* from, float factor, int64_t size, float* to);

}  // namespace freshet

#endif  // FRESHET_MODEL_KERNELS_ROW_OPS_H_
