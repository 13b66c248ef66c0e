#ifndef FRESHET_MODEL_LAYER_OPS_H_
#define FRESHET_MODEL_LAYER_OPS_H_

#include "model/torch.h"

namespace freshet {

// Differentiable decoder-layer operations that ATen would run in several passes. They run on the
// calling thread in a fixed order, and a row's result does not depend on the number of rows. On a
// GPU they use Freshet's CUDA kernels, or ATen where those are missing. Tensors are fp32 unless
// noted: the residual stream stays fp32 even if matrices are bf16.

// Matrix products of fewer rows give other bits in fp32, so where results must not depend on the
// batch, rows are padded to a multiple of this number.
constexpr int64_t kMinRows = 16;
constexpr int64_t PadRows(int64_t rows) { return (rows + kMinRows - 1) / kMinRows * kMinRows; }

// Rows of weight [V, H], fp32 or bf16, as fp32 [N, H]. Gradients of equal tokens are added in fp32,
// and rounded once if the weight is bf16. token_ids int64.
at::Tensor Embed(const at::Tensor& weight_VH, const at::Tensor& token_ids_N);

// x / rms(x) * weight over the last dimension. x [N, H], weight [H]. Returns fp32, or with
// Freshet's CUDA kernels `type`: that of the matrix that it is multiplied with.
at::Tensor RmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps,
                   at::ScalarType type = at::kFloat);

// Rotates the pairs (i, i + D/2) of every head by the angle of the token's position. x [N, heads,
// D] contiguous or a row-strided view, on a GPU also bf16; cos, sin fp32 [T, D/2]; positions int64
// [N].
at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions_N);

// silu(gate) * up of a fused [N, 2F] product; returns [N, F]. Also of bf16; computes in fp32.
at::Tensor SwiGlu(const at::Tensor& gate_up);

// The same with ATen's operations, on any device.
at::Tensor AtenRmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps);
at::Tensor AtenRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions_N);
at::Tensor AtenSwiGlu(const at::Tensor& gate_up);

}  // namespace freshet

#endif  // FRESHET_MODEL_LAYER_OPS_H_
