#include "trainer/learner/optimizer.h"

#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// The fused kernel takes its step count as a float.
constexpr int64_t kMaxStep = int64_t{1} << 24;

absl::Status CheckOptions(const AdamWOptions& options) {
  for (const auto& [name, beta] :
       {std::pair{"beta1", options.beta1}, std::pair{"beta2", options.beta2}}) {
    if (!(beta >= 0 && beta < 1)) {
      return InvalidArgument("optimizer ", name, " ", beta, " is outside [0, 1)");
    }
  }
  if (!(options.epsilon > 0 && options.epsilon <= 1)) {
    return InvalidArgument("optimizer epsilon ", options.epsilon, " is outside (0, 1]");
  }
  if (!(options.weight_decay >= 0 && options.weight_decay <= 10)) {
    return InvalidArgument("optimizer weight decay ", options.weight_decay, " is outside [0, 10]");
  }
  if (!(options.grad_clip_norm >= 0 && std::isfinite(options.grad_clip_norm))) {
    return InvalidArgument("optimizer grad_clip_norm ", options.grad_clip_norm,
                           " must be finite and at least 0 (0: no clipping)");
  }
  return absl::OkStatus();
}

absl::Status CheckMoment(std::string_view name, std::string_view moment, const at::Tensor& value,
                         const at::Tensor& parameter) {
  if (!value.defined() || value.scalar_type() != at::kFloat || value.sizes() != parameter.sizes()) {
    return InvalidArgument("optimizer state ", moment, " of ", name,
                           " must be fp32 with the parameter's shape");
  }
  if (!at::isfinite(value).all().item<bool>()) {
    return InvalidArgument("optimizer state ", moment, " of ", name, " is not finite");
  }
  return absl::OkStatus();
}

// L2 norm of one gradient. If the float sum of squares of a finite gradient overflows, it is
// recomputed in double.
double NormOf(const at::Tensor& grad) {
  const double norm = at::linalg_vector_norm(grad, 2).item<double>();
  return std::isfinite(norm) ? norm
                             : at::linalg_vector_norm(grad.to(at::kDouble), 2).item<double>();
}

}  // namespace

absl::StatusOr<AdamW> AdamW::Create(std::vector<TrainedParameter> parameters,
                                    const AdamWOptions& options) {
  FRESHET_RETURN_IF_ERROR(CheckOptions(options));
  return AdamW(std::move(parameters), options);
}

AdamW::AdamW(std::vector<TrainedParameter> parameters, const AdamWOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  Group decayed{options_.weight_decay, {}};
  Group plain;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& leaf = parameters_[i].value;
    FRESHET_CHECK(leaf.scalar_type() == at::kFloat && leaf.is_contiguous() && leaf.is_leaf() &&
                  leaf.requires_grad());
    const at::Tensor value = leaf.detach();
    moments_.push_back({at::zeros_like(value), at::zeros_like(value)});
    (value.dim() >= 2 ? decayed : plain).members.push_back(i);
  }
  for (Group& group : {std::ref(decayed), std::ref(plain)}) {
    if (!group.members.empty()) {
      groups_.push_back(std::move(group));
    }
  }
}

void AdamW::ZeroGrad() {
  for (const TrainedParameter& parameter : parameters_) {
    parameter.value.mutable_grad() = at::Tensor();
  }
}

absl::StatusOr<double> AdamW::GradNorm() const {
  double sum = 0;
  for (const TrainedParameter& parameter : parameters_) {
    if (!parameter.value.grad().defined()) {
      continue;
    }
    const double norm = NormOf(parameter.value.grad());
    if (!std::isfinite(norm)) {
      return FailedPrecondition("gradient of ", parameter.name, " is not finite after ", step_,
                                " optimizer steps: lower the learning rate or check the data");
    }
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

absl::StatusOr<StepReport> AdamW::Step(double learning_rate) {
  if (!(learning_rate >= 0 && std::isfinite(learning_rate))) {
    return InvalidArgument("learning rate ", learning_rate, " must be finite and at least 0");
  }
  if (step_ + 1 >= kMaxStep) {
    return FailedPrecondition("the optimizer counts at most ", kMaxStep, " steps");
  }
  const at::NoGradGuard no_grad;
  StepReport report;
  FRESHET_ASSIGN_OR_RETURN(report.grad_norm, GradNorm());
  if (options_.grad_clip_norm > 0 && report.grad_norm > options_.grad_clip_norm) {
    report.clip_scale = options_.grad_clip_norm / report.grad_norm;
  }
  ++step_;
  for (const Group& group : groups_) {
    std::vector<at::Tensor> values, grads, exp_avgs, exp_avg_sqs, steps;
    for (const size_t i : group.members) {
      const at::Tensor& value = parameters_[i].value;
      if (!value.grad().defined()) {
        value.mutable_grad() = at::zeros_like(value);
      }
      values.push_back(value);
      grads.push_back(value.grad());
      exp_avgs.push_back(moments_[i].exp_avg);
      exp_avg_sqs.push_back(moments_[i].exp_avg_sq);
      steps.push_back(
          at::full({}, static_cast<double>(step_), value.options().requires_grad(false)));
    }
    if (report.clip_scale != 1) {
      at::_foreach_mul_(grads, report.clip_scale);
    }
    at::_fused_adamw_(values, grads, exp_avgs, exp_avg_sqs, {}, steps, learning_rate,
                      options_.beta1, options_.beta2, group.weight_decay, options_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
  return report;
}

AdamWState AdamW::GetState() const {
  AdamWState state;
  state.step = step_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state.moments[parameters_[i].name] = moments_[i];
  }
  return state;
}

absl::Status AdamW::SetState(const AdamWState& state) {
  if (state.step < 0 || state.step >= kMaxStep) {
    return InvalidArgument("optimizer state step ", state.step, " is outside [0, ", kMaxStep, ")");
  }
  if (state.moments.size() != parameters_.size()) {
    return InvalidArgument("optimizer state has ", state.moments.size(),
                           " parameters: the model has ", parameters_.size());
  }
  for (const TrainedParameter& parameter : parameters_) {
    const auto it = state.moments.find(parameter.name);
    if (it == state.moments.end()) {
      return InvalidArgument("optimizer state has no parameter ", parameter.name);
    }
    FRESHET_RETURN_IF_ERROR(
        CheckMoment(parameter.name, "exp_avg", it->second.exp_avg, parameter.value));
    FRESHET_RETURN_IF_ERROR(
        CheckMoment(parameter.name, "exp_avg_sq", it->second.exp_avg_sq, parameter.value));
    if ((it->second.exp_avg_sq < 0).any().item<bool>()) {
      return InvalidArgument("optimizer state exp_avg_sq of ", parameter.name, " is negative");
    }
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const AdamWMoments& from = state.moments.at(parameters_[i].name);
    moments_[i].exp_avg.copy_(from.exp_avg);
    moments_[i].exp_avg_sq.copy_(from.exp_avg_sq);
  }
  step_ = state.step;
  return absl::OkStatus();
}

}  // namespace freshet
