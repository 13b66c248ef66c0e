#include "trainer/learner/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<ScheduleKind> ParseScheduleKind(std::string_view name) {
  if (name == "constant") {
    return ScheduleKind::kConstant;
  }
  if (name == "linear") {
    return ScheduleKind::kLinear;
  }
  if (name == "cosine") {
    return ScheduleKind::kCosine;
  }
  return InvalidArgument("schedule '", name.substr(0, 40),
                         "' is not one of constant, linear, cosine");
}

absl::Status ValidateSchedule(const LearningRateSchedule& schedule) {
  if (!(schedule.peak >= 0 && schedule.peak <= 10)) {
    return InvalidArgument("learning rate ", schedule.peak, " is outside [0, 10]");
  }
  if (schedule.total_steps < 1) {
    return InvalidArgument("total steps ", schedule.total_steps, " must be at least 1");
  }
  if (schedule.warmup_steps < 0 || schedule.warmup_steps > schedule.total_steps) {
    return InvalidArgument("warm-up steps ", schedule.warmup_steps, " are outside [0, ",
                           schedule.total_steps, "], the number of steps");
  }
  if (!(schedule.final_fraction >= 0 && schedule.final_fraction <= 1)) {
    return InvalidArgument("final learning rate is ", schedule.final_fraction,
                           " of the peak: it must be in [0, 1]");
  }
  return absl::OkStatus();
}

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  step = std::max<int64_t>(step, 1);
  if (step <= schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == ScheduleKind::kConstant) {
    return schedule.peak;
  }
  const int64_t start = std::max<int64_t>(schedule.warmup_steps, 1);
  if (step <= start) {
    return schedule.peak;
  }
  const double progress =
      step >= schedule.total_steps
          ? 1.0
          : static_cast<double>(step - start) / static_cast<double>(schedule.total_steps - start);
  const double shape = schedule.kind == ScheduleKind::kLinear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  const double low = schedule.final_fraction * schedule.peak;
  return low + (schedule.peak - low) * shape;
}

}  // namespace freshet
