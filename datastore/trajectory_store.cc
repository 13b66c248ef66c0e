#include "datastore/trajectory_store.h"

#include <array>

#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

absl::Status AtLeast(const char* name, int64_t value, int64_t low) {
  if (value >= low) return absl::OkStatus();
  return InvalidArgument(name, ": ", value, " is too small: use at least ", low);
}

absl::Status AtMost(const char* name, int64_t value, int64_t high) {
  if (value <= high) return absl::OkStatus();
  return InvalidArgument(name, ": ", value, " is too large: use at most ", high);
}

}  // namespace

const char* Name(GroupState state) {
  static constexpr std::array<const char*, kNumGroupStates> kNames = {
      "queued",  "leased",  "generated", "scored",   "ready",   "claimed",
      "trained", "durable", "requeued",  "filtered", "dropped", "dead"};
  return kNames[static_cast<size_t>(state)];
}

absl::Status StoreOptions::Validate() const {
  if (job.empty() || job.find('/') != std::string::npos) {
    return InvalidArgument("job: '", job.substr(0, 80), "' must be a name without '/'");
  }
  FRESHET_RETURN_IF_ERROR(staleness.Validate());
  FRESHET_RETURN_IF_ERROR(AtLeast("group_size", group_size, 1));
  FRESHET_RETURN_IF_ERROR(AtMost("group_size", group_size, 65536));
  FRESHET_RETURN_IF_ERROR(AtLeast("last_step", last_step, 1));
  FRESHET_RETURN_IF_ERROR(AtMost("last_step", last_step, 1'000'000'000));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_queued_prompts", max_queued_prompts, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_row_failures", max_row_failures, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_requeues", max_requeues, 0));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_filtered_in_a_row", max_filtered_in_a_row, 0));
  if (filter_zero_variance && group_size == 1) {
    return InvalidArgument("filter_zero_variance: group_size 1: every group would be filtered");
  }
  if (lease_ttl <= absl::ZeroDuration() || lease_ttl > absl::Hours(24 * 365)) {
    return InvalidArgument("lease_ttl: ", absl::FormatDuration(lease_ttl),
                           " is out of range: use more than 0 and at most a year");
  }
  return ValidateCapacity(capacity_groups, staleness.max, 0, staleness.groups_per_step);
}

absl::Status ValidateCapacity(int64_t capacity_groups, int64_t eta, int64_t checkpoint_every,
                              int64_t groups_per_step) {
  constexpr int64_t kMaxInterval = 1'000'000'000;
  if (eta < 0 || groups_per_step < 1 || checkpoint_every < 0 || checkpoint_every > kMaxInterval) {
    return InvalidArgument("capacity: staleness ", eta, ", checkpoint interval ", checkpoint_every,
                           " or groups per step ", groups_per_step, " is out of range");
  }
  const int64_t needed = (eta + 1 + 2 * checkpoint_every) * groups_per_step;
  if (capacity_groups >= needed) return absl::OkStatus();
  const int64_t steps = capacity_groups < 0 ? 0 : capacity_groups / groups_per_step - (eta + 1);
  std::string fix = StrCat("use at least ", needed);
  if (checkpoint_every > 0 && steps >= 2) {
    fix += StrCat(", or checkpoint every ", steps / 2, " steps or fewer");
  }
  return InvalidArgument("capacity_groups: ", capacity_groups, " is too small for (staleness.max ",
                         eta, " + 1 + 2 * checkpoint interval ", checkpoint_every,
                         ") * groups_per_step ", groups_per_step, ": ", fix);
}

}  // namespace freshet
