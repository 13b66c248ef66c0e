#include "model/cuda_layer_ops.h"

#include <c10/core/DeviceGuard.h>

#include <vector>

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

int IsBf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16 ? 1 : 0; }

class CudaRmsNormFunction : public Function<CudaRmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const CudaKernels* kernels, const at::Tensor& x,
                            const at::Tensor& weight, double eps, at::ScalarType type) {
    const c10::DeviceGuard guard(x.device());
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty(in.sizes(), in.options().dtype(type));
    at::Tensor inverses = at::empty({in.size(0)}, in.options());
    // Without a delta, x is not changed.
    auto* numbers = const_cast<float*>(in.const_data_ptr<float>());
    kernels->Check(
        kernels->rms_norm(numbers, nullptr, weight.const_data_ptr<float>(), out.mutable_data_ptr(),
                          inverses.mutable_data_ptr<float>(), in.size(0), in.size(1),
                          static_cast<float>(eps), IsBf16(out), CurrentCudaStream(in.device())),
        "RMSNorm");
    ctx->save_for_backward({in, weight, inverses});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const CudaKernels& kernels = *CudaKernels::Get();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor d = grads[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    at::Tensor parts = at::empty({FRESHET_RMS_PARTS, x.size(1)}, x.options());
    kernels.Check(
        kernels.rms_norm_gradient(x.const_data_ptr<float>(), saved[1].const_data_ptr<float>(),
                                  saved[2].const_data_ptr<float>(), d.const_data_ptr(),
                                  dx.mutable_data_ptr<float>(), parts.mutable_data_ptr<float>(),
                                  x.size(0), x.size(1), IsBf16(d), CurrentCudaStream(x.device())),
        "gradient of RMSNorm");
    return {at::Tensor(), dx, parts.sum(0), at::Tensor(), at::Tensor()};
  }
};

at::Tensor Rotate(const CudaKernels& kernels, const at::Tensor& x, const at::Tensor& cos,
                  const at::Tensor& sin, const at::Tensor& positions, bool back) {
  const c10::DeviceGuard guard(x.device());
  const bool usable = x.stride(2) == 1 && x.stride(1) == x.size(2);
  const at::Tensor in = usable ? x : x.contiguous();
  at::Tensor out = at::empty({x.size(0), x.size(1), x.size(2)}, x.options());
  kernels.Check(kernels.rope(in.const_data_ptr(), in.stride(0), cos.const_data_ptr<float>(),
                             sin.const_data_ptr<float>(), positions.const_data_ptr<int64_t>(),
                             out.mutable_data_ptr(), x.size(0), x.size(1), x.size(2) / 2,
                             back ? 1 : 0, IsBf16(x), CurrentCudaStream(x.device())),
                "rotary embedding");
  return out;
}

class CudaRopeFunction : public Function<CudaRopeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const CudaKernels* kernels, const at::Tensor& x,
                            const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions) {
    ctx->save_for_backward({cos, sin, positions});
    return Rotate(*kernels, x, cos, sin, positions, /*back=*/false);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {at::Tensor(),
            Rotate(*CudaKernels::Get(), grads[0], saved[0], saved[1], saved[2], /*back=*/true),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class CudaSwiGluFunction : public Function<CudaSwiGluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const CudaKernels* kernels,
                            const at::Tensor& gate_up) {
    const c10::DeviceGuard guard(gate_up.device());
    const at::Tensor in = gate_up.contiguous();
    at::Tensor out = at::empty({in.size(0), in.size(1) / 2}, in.options());
    kernels->Check(kernels->swiglu(in.const_data_ptr(), out.mutable_data_ptr(), out.size(0),
                                   out.size(1), IsBf16(in), CurrentCudaStream(in.device())),
                   "SwiGLU");
    ctx->save_for_backward({in});
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const CudaKernels& kernels = *CudaKernels::Get();
    const at::Tensor in = ctx->get_saved_variables()[0];
    const at::Tensor d = grads[0].contiguous();
    at::Tensor out = at::empty_like(in);
    kernels.Check(
        kernels.swiglu_gradient(in.const_data_ptr(), d.const_data_ptr(), out.mutable_data_ptr(),
                                d.size(0), d.size(1), IsBf16(in), CurrentCudaStream(in.device())),
        "gradient of SwiGLU");
    return {at::Tensor(), out};
  }
};

class CudaGatherFunction : public Function<CudaGatherFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rows,
                            const at::Tensor& starts, const at::Tensor& places) {
    ctx->save_for_backward({starts, places});
    return x.index_select(0, rows);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const CudaKernels& kernels = *CudaKernels::Get();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor d = grads[0].contiguous();
    const int64_t rows = saved[0].size(0) - 1;
    std::vector<int64_t> shape = d.sizes().vec();
    shape.front() = rows;
    at::Tensor out = at::empty(shape, d.options());
    kernels.Check(kernels.gather_sum(d.const_data_ptr(), saved[0].const_data_ptr<int32_t>(),
                                     saved[1].const_data_ptr<int32_t>(), out.mutable_data_ptr(),
                                     rows, rows == 0 ? 0 : out.numel() / rows, IsBf16(d),
                                     CurrentCudaStream(d.device())),
                  "sum of gathered rows");
    return {out, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor CudaGatherRows(const at::Tensor& x, const GatheredRows& gathered) {
  return CudaGatherFunction::apply(x, gathered.rows, gathered.starts, gathered.places);
}

at::Tensor CudaRmsNorm(const CudaKernels& kernels, const at::Tensor& x_NH,
                       const at::Tensor& weight_H, double eps, at::ScalarType type) {
  return CudaRmsNormFunction::apply(&kernels, x_NH, weight_H, eps, type);
}

at::Tensor CudaRope(const CudaKernels& kernels, const at::Tensor& x, const at::Tensor& cos,
                    const at::Tensor& sin, const at::Tensor& positions_N) {
  return CudaRopeFunction::apply(&kernels, x, cos, sin, positions_N);
}

at::Tensor CudaSwiGlu(const CudaKernels& kernels, const at::Tensor& gate_up) {
  return CudaSwiGluFunction::apply(&kernels, gate_up);
}

}  // namespace freshet
