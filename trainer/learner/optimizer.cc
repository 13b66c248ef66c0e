#include "trainer/learner/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/learner/adamw_kernel.h"
#include "trainer/learner/aten_adamw.h"
#include "trainer/learner/memory_uses.h"

namespace freshet {
namespace {

constexpr int64_t kPieceElements = int64_t{64} << 10;

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

absl::Status CheckMoment(std::string_view moment, const at::Tensor& value, int64_t size) {
  if (!value.defined() || value.scalar_type() != at::kFloat || value.dim() != 1 ||
      value.numel() != size) {
    return InvalidArgument("optimizer state ", moment, " must be fp32 with ", size, " elements");
  }
  if (!at::isfinite(value).all().item<bool>()) {
    return InvalidArgument("optimizer state ", moment, " is not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckState(const AdamWState& state, int64_t size) {
  if (state.step < 0) return InvalidArgument("optimizer state step ", state.step, " is negative");
  FRESHET_RETURN_IF_ERROR(CheckMoment("exp_avg", state.exp_avg, size));
  FRESHET_RETURN_IF_ERROR(CheckMoment("exp_avg_sq", state.exp_avg_sq, size));
  if ((state.exp_avg_sq < 0).any().item<bool>()) {
    return InvalidArgument("optimizer state exp_avg_sq is negative");
  }
  return absl::OkStatus();
}

// A flat fp32 tensor's numbers.
float* Floats(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

}  // namespace

absl::Status NotFinite(const ParameterRange& range, int64_t steps) {
  return FailedPrecondition("gradient of ", range.name, " is not finite after ", steps,
                            " optimizer steps: lower the learning rate or check the data");
}

absl::StatusOr<AdamW> AdamW::Create(std::vector<ParameterRange> ranges, int64_t arena_size,
                                    const AdamWOptions& options, at::Device device,
                                    AdamWState state) {
  FRESHET_RETURN_IF_ERROR(CheckOptions(options));
  if (state.exp_avg.defined()) {
    FRESHET_RETURN_IF_ERROR(CheckState(state, arena_size));
  } else {
    WithMemoryFor([&] { return OptimizerStateOf(arena_size, device); },
                  [&] {
                    state.exp_avg =
                        at::zeros({arena_size}, at::TensorOptions(device).dtype(at::kFloat));
                    state.exp_avg_sq = at::zeros_like(state.exp_avg);
                  });
  }
  return AdamW(std::move(ranges), arena_size, options, std::move(state));
}

AdamW::AdamW(std::vector<ParameterRange> ranges, int64_t arena_size, const AdamWOptions& options,
             AdamWState state)
    : ranges_(std::move(ranges)),
      options_(options),
      exp_avg_(std::move(state.exp_avg)),
      exp_avg_sq_(std::move(state.exp_avg_sq)),
      step_(state.step) {
  int64_t end = 0;
  for (const ParameterRange& range : ranges_) {
    FRESHET_CHECK(range.begin >= end && range.begin + range.size <= arena_size);
    end = range.begin + range.size;
    for (int64_t first = 0; first < range.size; first += kPieceElements) {
      pieces_.push_back({range.name, range.begin + first,
                         std::min(kPieceElements, range.size - first), range.decays});
    }
  }
}

absl::StatusOr<double> AdamW::GradNorm(const at::Tensor& gradients, ThreadPool& pool) const {
  if (!gradients.is_cpu()) {
    const double norm = AtenNorm(gradients);
    if (std::isfinite(norm)) return norm;
    for (const ParameterRange& range : ranges_) {
      const at::Tensor part = gradients.narrow(0, range.begin, range.size);
      if (!at::isfinite(part).all().item<bool>()) return NotFinite(range, step_);
    }
    return Internal("the gradients' norm is not finite, but they are");
  }
  const std::vector<double> squares = Squares(gradients, pool);
  double sum = 0;
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (!std::isfinite(squares[piece])) {
      return NotFinite(pieces_[piece], step_);
    }
    sum += squares[piece];
  }
  return std::sqrt(sum);
}

std::vector<double> AdamW::Squares(const at::Tensor& gradients, ThreadPool& pool) const {
  if (!gradients.is_cpu()) return AtenSquares(gradients, ranges_);
  const float* numbers = Floats(gradients);
  std::vector<double> squares(pieces_.size());
  pool.For(std::ssize(pieces_), [&](int64_t i, int) {
    const auto piece = static_cast<size_t>(i);
    squares[piece] = SumOfSquaresInDouble(numbers + pieces_[piece].begin, pieces_[piece].size);
  });
  return squares;
}

absl::StatusOr<StepReport> AdamW::Step(double learning_rate, const at::Tensor& gradients,
                                       const at::Tensor& values, const at::Tensor& rounded,
                                       ThreadPool& pool, const AddSquares& add_squares) {
  if (!(learning_rate >= 0 && std::isfinite(learning_rate))) {
    return InvalidArgument("learning rate ", learning_rate, " must be finite and at least 0");
  }
  FRESHET_CHECK(values.numel() == exp_avg_.numel() && gradients.numel() == exp_avg_.numel());
  StepReport report;
  if (add_squares == nullptr) {
    FRESHET_ASSIGN_OR_RETURN(report.grad_norm, GradNorm(gradients, pool));
  } else {
    FRESHET_ASSIGN_OR_RETURN(const double squares, add_squares(Squares(gradients, pool)));
    report.grad_norm = std::sqrt(squares);
  }
  if (options_.grad_clip_norm > 0 && report.grad_norm > options_.grad_clip_norm) {
    report.clip_scale = options_.grad_clip_norm / report.grad_norm;
  }
  ++step_;
  if (!values.is_cpu()) {
    AtenAdamWUpdate(options_, ranges_, step_, learning_rate, report.clip_scale,
                    {values, gradients, exp_avg_, exp_avg_sq_, rounded});
    return report;
  }
  const auto steps = static_cast<double>(step_);
  AdamWFactors plain;
  plain.gradient_scale = static_cast<float>(report.clip_scale);
  plain.beta1 = static_cast<float>(options_.beta1);
  plain.beta2 = static_cast<float>(options_.beta2);
  plain.rest1 = static_cast<float>(1.0 - options_.beta1);
  plain.rest2 = static_cast<float>(1.0 - options_.beta2);
  plain.rate = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, steps)));
  plain.inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, steps)));
  plain.epsilon = static_cast<float>(options_.epsilon);
  AdamWFactors decaying = plain;
  decaying.keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
  auto* bits = rounded.defined() ? static_cast<uint16_t*>(rounded.mutable_data_ptr()) : nullptr;
  pool.For(std::ssize(pieces_), [&](int64_t i, int) {
    const ParameterRange& piece = pieces_[static_cast<size_t>(i)];
    const int64_t begin = piece.begin;
    AdamWUpdate(piece.decays ? decaying : plain, piece.size, Floats(gradients) + begin,
                Floats(values) + begin, Floats(exp_avg_) + begin, Floats(exp_avg_sq_) + begin,
                bits == nullptr ? nullptr : bits + begin);
  });
  return report;
}

absl::Status AdamW::SetState(const AdamWState& state) {
  FRESHET_RETURN_IF_ERROR(CheckState(state, exp_avg_.numel()));
  exp_avg_.copy_(state.exp_avg);
  exp_avg_sq_.copy_(state.exp_avg_sq);
  step_ = state.step;
  return absl::OkStatus();
}

}  // namespace freshet
