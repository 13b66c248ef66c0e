#include "model/layer_ops.h"

#include "model/cuda_layer_ops.h"
#include "model/kernels/row_ops.h"

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

// Saves 1 / rms of every row for the backward pass.
class RmsNormFunction : public Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const int64_t rows = x.size(0);
    const int64_t width = x.size(1);
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    at::Tensor inverses = at::empty({rows}, in.options());
    const auto* from = in.const_data_ptr<float>();
    const auto* w = weight.const_data_ptr<float>();
    auto* to = out.mutable_data_ptr<float>();
    auto* inverse = inverses.mutable_data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
      inverse[r] = RmsNormRow(from + r * width, w, width, eps, to + r * width);
    }
    ctx->save_for_backward({in, weight, inverses});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor d = grads[0].contiguous();
    const int64_t width = x.size(1);
    at::Tensor dx = at::empty_like(x);
    at::Tensor dw = at::zeros({width}, x.options());
    const auto* from = x.const_data_ptr<float>();
    const auto* w = saved[1].const_data_ptr<float>();
    const auto* inverse = saved[2].const_data_ptr<float>();
    const auto* change = d.const_data_ptr<float>();
    auto* to = dx.mutable_data_ptr<float>();
    auto* to_weight = dw.mutable_data_ptr<float>();
    for (int64_t r = 0; r < x.size(0); ++r) {
      RmsNormRowGradient(from + r * width, w, inverse[r], change + r * width, width, to + r * width,
                         to_weight);
    }
    return {dx, dw, at::Tensor()};
  }
};

// Rotates x by the table's angles, or back by them.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const at::Tensor& positions, bool back) {
  const int64_t heads = x.size(1);
  const int64_t dim = x.size(2);
  at::Tensor out = at::empty({x.size(0), heads, dim}, x.options());
  const bool usable = x.stride(2) == 1 && x.stride(1) == dim;
  const at::Tensor in = usable ? x : x.contiguous();
  const auto* from = in.const_data_ptr<float>();
  const auto* c = cos.const_data_ptr<float>();
  const auto* s = sin.const_data_ptr<float>();
  const auto* position = positions.const_data_ptr<int64_t>();
  auto* to = out.mutable_data_ptr<float>();
  for (int64_t r = 0; r < x.size(0); ++r) {
    const int64_t angles = position[r] * (dim / 2);
    for (int64_t h = 0; h < heads; ++h) {
      RopeHead(from + r * in.stride(0) + h * dim, c + angles, s + angles, dim / 2, back,
               to + (r * heads + h) * dim);
    }
  }
  return out;
}

class RopeFunction : public Function<RopeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, const at::Tensor& positions) {
    ctx->save_for_backward({cos, sin, positions});
    return Rotate(x, cos, sin, positions, /*back=*/false);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {Rotate(grads[0], saved[0], saved[1], saved[2], /*back=*/true), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

// The bits of bf16 numbers, or fp32 numbers.
template <typename T>
const T* Numbers(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

class SwiGluFunction : public Function<SwiGluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    const at::Tensor in = gate_up.contiguous();
    at::Tensor out = at::empty({in.size(0), in.size(1) / 2}, in.options());
    in.scalar_type() == at::kFloat ? Compute<float>(in, out) : Compute<uint16_t>(in, out);
    ctx->save_for_backward({in});
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const at::Tensor in = ctx->get_saved_variables()[0];
    const at::Tensor d = grads[0].contiguous();
    at::Tensor out = at::empty_like(in);
    in.scalar_type() == at::kFloat ? Differentiate<float>(in, d, out)
                                   : Differentiate<uint16_t>(in, d, out);
    return {out};
  }

 private:
  template <typename T>
  static void Compute(const at::Tensor& in, at::Tensor& out) {
    const int64_t size = out.size(1);
    auto* to = static_cast<T*>(out.mutable_data_ptr());
    for (int64_t r = 0; r < out.size(0); ++r) {
      SwiGluRow(Numbers<T>(in) + r * 2 * size, size, to + r * size);
    }
  }
  template <typename T>
  static void Differentiate(const at::Tensor& in, const at::Tensor& d, at::Tensor& out) {
    const int64_t size = d.size(1);
    auto* to = static_cast<T*>(out.mutable_data_ptr());
    for (int64_t r = 0; r < d.size(0); ++r) {
      SwiGluRowGradient(Numbers<T>(in) + r * 2 * size, Numbers<T>(d) + r * size, size,
                        to + r * 2 * size);
    }
  }
};

class EmbedFunction : public Function<EmbedFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight,
                            const at::Tensor& token_ids) {
    ctx->save_for_backward({token_ids});
    ctx->saved_data["rows"] = weight.size(0);
    return weight.index_select(0, token_ids).to(at::kFloat);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const at::Tensor token_ids = ctx->get_saved_variables()[0];
    const int64_t rows = ctx->saved_data["rows"].toInt();
    return {
        at::zeros({rows, grads[0].size(1)}, grads[0].options()).index_add_(0, token_ids, grads[0]),
        at::Tensor()};
  }
};

}  // namespace

at::Tensor Embed(const at::Tensor& weight_VH, const at::Tensor& token_ids_N) {
  return EmbedFunction::apply(weight_VH, token_ids_N);
}

at::Tensor RmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps,
                   at::ScalarType type) {
  if (x_NH.is_cpu()) return RmsNormFunction::apply(x_NH, weight_H, eps);
  const CudaKernels* kernels = CudaKernels::Get();
  if (kernels == nullptr || weight_H.size(0) > FRESHET_RMS_MOST) {
    return AtenRmsNorm(x_NH, weight_H, eps);
  }
  return CudaRmsNorm(*kernels, x_NH, weight_H, eps, type);
}

at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions_N) {
  if (x.is_cpu()) return RopeFunction::apply(x, cos, sin, positions_N);
  const CudaKernels* kernels = CudaKernels::Get();
  return kernels == nullptr ? AtenRope(x, cos, sin, positions_N)
                            : CudaRope(*kernels, x, cos, sin, positions_N);
}

at::Tensor AtenRmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps) {
  return at::rms_norm(x_NH, weight_H.sizes(), weight_H, eps);
}

at::Tensor AtenRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions_N) {
  const int64_t half = x.size(2) / 2;
  const at::Tensor c = cos.index_select(0, positions_N).unsqueeze(1);
  const at::Tensor s = sin.index_select(0, positions_N).unsqueeze(1);
  const at::Tensor a = x.narrow(2, 0, half);
  const at::Tensor b = x.narrow(2, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, 2);
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  if (gate_up.is_cpu()) return SwiGluFunction::apply(gate_up);
  const CudaKernels* kernels = CudaKernels::Get();
  return kernels == nullptr ? AtenSwiGlu(gate_up) : CudaSwiGlu(*kernels, gate_up);
}

at::Tensor AtenSwiGlu(const at::Tensor& gate_up) {
  const int64_t inner = gate_up.size(1) / 2;
  const at::Tensor wide = gate_up.to(at::kFloat);
  return (at::silu(wide.narrow(1, 0, inner)) * wide.narrow(1, inner, inner))
      .to(gate_up.scalar_type());
}

}  // namespace freshet
