#include "trainer/learner/aten_adamw.h"

#include <optional>

namespace freshet {

double AtenNorm(const at::Tensor& flat) {
  return at::linalg_vector_norm(flat, 2, std::nullopt, /*keepdim=*/false, at::kDouble)
      .item<double>();
}

std::vector<double> AtenSquares(const at::Tensor& flat, const std::vector<ParameterRange>& ranges) {
  std::vector<at::Tensor> norms;
  norms.reserve(ranges.size());
  for (const ParameterRange& range : ranges) {
    norms.push_back(at::linalg_vector_norm(flat.narrow(0, range.begin, range.size), 2, std::nullopt,
                                           /*keepdim=*/false, at::kDouble));
  }
  if (norms.empty()) return {};
  const at::Tensor squares = at::stack(norms).square_().cpu();
  const double* const numbers = squares.const_data_ptr<double>();
  return {numbers, numbers + squares.numel()};
}

void AtenAdamWUpdate(const AdamWOptions& options, const std::vector<ParameterRange>& ranges,
                     int64_t step, double learning_rate, double gradient_scale,
                     const AdamWTensors& tensors) {
  const at::NoGradGuard no_grad;
  const auto scalar = [&](double value) {
    return at::full({}, value, tensors.values.options().dtype(at::kFloat));
  };
  const at::Tensor step_number = scalar(static_cast<double>(step));
  std::optional<at::Tensor> divisor;
  if (gradient_scale != 1) divisor = scalar(1 / gradient_scale);
  for (const bool decays : {false, true}) {
    std::vector<at::Tensor> values, gradients, exp_avg, exp_avg_sq;
    for (const ParameterRange& range : ranges) {
      if (range.decays != decays) continue;
      values.push_back(tensors.values.narrow(0, range.begin, range.size));
      gradients.push_back(tensors.gradients.narrow(0, range.begin, range.size));
      exp_avg.push_back(tensors.exp_avg.narrow(0, range.begin, range.size));
      exp_avg_sq.push_back(tensors.exp_avg_sq.narrow(0, range.begin, range.size));
    }
    if (values.empty()) continue;
    const std::vector<at::Tensor> steps(values.size(), step_number);
    at::_fused_adamw_(values, gradients, exp_avg, exp_avg_sq, /*max_exp_avg_sqs=*/{}, steps,
                      learning_rate, options.beta1, options.beta2,
                      decays ? options.weight_decay : 0, options.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, divisor);
  }
  if (tensors.rounded.defined()) at::Tensor(tensors.rounded).copy_(tensors.values);
}

}  // namespace freshet
