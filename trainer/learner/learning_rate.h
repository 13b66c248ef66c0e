#ifndef FRESHET_TRAINER_LEARNER_LEARNING_RATE_H_
#define FRESHET_TRAINER_LEARNER_LEARNING_RATE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

enum class ScheduleKind { kConstant, kLinear, kCosine };

// Returns INVALID_ARGUMENT unless `name` is constant, linear or cosine.
absl::StatusOr<ScheduleKind> ParseScheduleKind(std::string_view name);

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 0;           // [0, 10]
  int64_t warmup_steps = 0;  // at most total_steps
  int64_t total_steps = 1;
  double final_fraction = 0;  // [0, 1]: linear and cosine end at final_fraction * peak
};

// Returns INVALID_ARGUMENT for a member outside its range.
absl::Status ValidateSchedule(const LearningRateSchedule& schedule);

// The learning rate of step `step`, counted from 1, of a valid schedule:
//   step <= warmup_steps   peak * step / warmup_steps
//   after it, constant     peak
//   after it, linear       low + (peak - low) * (1 - p)
//   after it, cosine       low + (peak - low) * (1 + cos(pi * p)) / 2
// where low = final_fraction * peak, s = max(warmup_steps, 1) and p = min((step - s) / (total_steps
// - s), 1). So step s has the peak, and the last and all later steps have the rate low. A schedule
// that ends with its warm-up drops to low after total_steps. Steps below 1 count as 1. Pure;
// thread-safe.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LEARNING_RATE_H_
