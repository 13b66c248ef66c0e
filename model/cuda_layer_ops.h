#ifndef FRESHET_MODEL_CUDA_LAYER_OPS_H_
#define FRESHET_MODEL_CUDA_LAYER_OPS_H_

#include "model/cuda_kernels.h"
#include "model/torch.h"

namespace freshet {

// The operations of layer_ops.h with Freshet's CUDA kernels, on tensors of one GPU. Differentiable.
// They throw c10::Error.

// x fp32 [N, H], weight fp32 [H] with H at most FRESHET_RMS_MOST. Returns `type`: fp32 or bf16.
at::Tensor CudaRmsNorm(const CudaKernels& kernels, const at::Tensor& x_NH,
                       const at::Tensor& weight_H, double eps, at::ScalarType type);
// x fp32 or bf16 [N, heads, D]; returns the same type.
at::Tensor CudaRope(const CudaKernels& kernels, const at::Tensor& x, const at::Tensor& cos,
                    const at::Tensor& sin, const at::Tensor& positions_N);
// gate_up fp32 or bf16 [N, 2F]; returns the same type.
at::Tensor CudaSwiGlu(const CudaKernels& kernels, const at::Tensor& gate_up);

// Which row of x each row of a result copies; a row may be copied several times. Its gradient is
// the sum of those of its copies, in fp32 and always in the same order.
struct GatheredRows {
  at::Tensor rows;    // int64 [copies]
  at::Tensor starts;  // int32 [rows of x + 1]: the copies of row r are places[starts[r]] and so on
  at::Tensor places;  // int32 [copies]
};
// x fp32 or bf16 [starts.size(0) - 1, ...]; returns [copies, ...]. CudaKernels::Get() must not be
// null.
at::Tensor CudaGatherRows(const at::Tensor& x, const GatheredRows& gathered);

}  // namespace freshet

#endif  // FRESHET_MODEL_CUDA_LAYER_OPS_H_
