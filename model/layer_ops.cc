#include "model/layer_ops.h"

#include <cmath>

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

// y = x * inv_rms * w per row; saves inv_rms for the backward pass.
class RmsNormFunction : public Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const int64_t rows = x.size(0);
    const int64_t width = x.size(1);
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    at::Tensor inv = at::empty({rows}, in.options());
    const float* xp = in.const_data_ptr<float>();
    const float* wp = weight.const_data_ptr<float>();
    float* yp = out.mutable_data_ptr<float>();
    float* ip = inv.mutable_data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
      const float* xr = xp + r * width;
      float* yr = yp + r * width;
      // Eight partial sums: a fixed order that the compiler can keep in one register.
      float sums[8] = {};
      int64_t i = 0;
      for (; i + 8 <= width; i += 8) {
        for (int64_t j = 0; j < 8; ++j) sums[j] += xr[i + j] * xr[i + j];
      }
      for (; i < width; ++i) sums[0] += xr[i] * xr[i];
      const float total =
          ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
      const float scale =
          1.0F / std::sqrt(total / static_cast<float>(width) + static_cast<float>(eps));
      ip[r] = scale;
      for (int64_t k = 0; k < width; ++k) yr[k] = xr[k] * scale * wp[k];
    }
    ctx->save_for_backward({in, weight, inv});
    return out;
  }

  // dx = inv * (dy*w - x * inv^2 * mean(dy*w*x)); dw = sum over rows of dy * x * inv.
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor dy = grads[0].contiguous();
    const int64_t rows = x.size(0);
    const int64_t width = x.size(1);
    at::Tensor dx = at::empty_like(x);
    at::Tensor dw = at::zeros({width}, x.options());
    const float* xp = x.const_data_ptr<float>();
    const float* wp = saved[1].const_data_ptr<float>();
    const float* ip = saved[2].const_data_ptr<float>();
    const float* gp = dy.const_data_ptr<float>();
    float* dxp = dx.mutable_data_ptr<float>();
    float* dwp = dw.mutable_data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
      const float* xr = xp + r * width;
      const float* gr = gp + r * width;
      float* dr = dxp + r * width;
      const float inv = ip[r];
      float dot = 0;
      for (int64_t k = 0; k < width; ++k) dot += gr[k] * wp[k] * xr[k];
      const float c = dot * inv * inv * inv / static_cast<float>(width);
      for (int64_t k = 0; k < width; ++k) {
        dr[k] = gr[k] * wp[k] * inv - xr[k] * c;
        dwp[k] += gr[k] * xr[k] * inv;
      }
    }
    return {dx, dw, at::Tensor()};
  }
};

// Rotates x by the table's angles, or by their negatives if `inverse`.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const at::Tensor& positions, bool inverse) {
  const int64_t rows = x.size(0);
  const int64_t heads = x.size(1);
  const int64_t half = x.size(2) / 2;
  at::Tensor out = at::empty({rows, heads, 2 * half}, x.options());
  const bool usable = x.stride(2) == 1 && x.stride(1) == 2 * half;
  const at::Tensor in = usable ? x : x.contiguous();
  const int64_t row_stride = in.stride(0);
  const float* xp = in.const_data_ptr<float>();
  const float* cp = cos.const_data_ptr<float>();
  const float* sp = sin.const_data_ptr<float>();
  const int64_t* pp = positions.const_data_ptr<int64_t>();
  float* yp = out.mutable_data_ptr<float>();
  const float sign = inverse ? -1.0F : 1.0F;
  for (int64_t r = 0; r < rows; ++r) {
    const float* c = cp + pp[r] * half;
    const float* s = sp + pp[r] * half;
    for (int64_t h = 0; h < heads; ++h) {
      const float* xr = xp + r * row_stride + h * 2 * half;
      float* yr = yp + (r * heads + h) * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = xr[i];
        const float b = xr[i + half];
        yr[i] = a * c[i] - sign * b * s[i];
        yr[i + half] = b * c[i] + sign * a * s[i];
      }
    }
  }
  return out;
}

class RopeFunction : public Function<RopeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, const at::Tensor& positions) {
    ctx->save_for_backward({cos, sin, positions});
    return Rotate(x, cos, sin, positions, /*inverse=*/false);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {Rotate(grads[0], saved[0], saved[1], saved[2], /*inverse=*/true), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps) {
  return x_NH.is_cpu() ? RmsNormFunction::apply(x_NH, weight_H, eps)
                       : AtenRmsNorm(x_NH, weight_H, eps);
}

at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions_N) {
  return x.is_cpu() ? RopeFunction::apply(x, cos, sin, positions_N)
                    : AtenRope(x, cos, sin, positions_N);
}

at::Tensor AtenRmsNorm(const at::Tensor& x_NH, const at::Tensor& weight_H, double eps) {
  return x_NH * at::rsqrt(x_NH.square().mean(-1, /*keepdim=*/true) + eps) * weight_H;
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
  const int64_t inner = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, inner)) * gate_up.narrow(1, inner, inner);
}

}  // namespace freshet
