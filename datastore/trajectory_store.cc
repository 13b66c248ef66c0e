#include "datastore/trajectory_store.h"

#include <array>

#include "base/status_macros.h"
#include "base/str_cat.h"

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
  FRESHET_RETURN_IF_ERROR(AtLeast("max_ledger_rows", max_ledger_rows, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_row_failures", max_row_failures, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_lease_failures", max_lease_failures, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_hand_backs", max_hand_backs, 1));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_requeues", max_requeues, 0));
  FRESHET_RETURN_IF_ERROR(AtLeast("max_filtered_in_a_row", max_filtered_in_a_row, 0));
  if (filter.zero_variance && group_size == 1) {
    return InvalidArgument("filter_zero_variance: group_size 1: every group would be filtered");
  }
  if (filter.min_mean.has_value() && filter.max_mean.has_value() &&
      *filter.min_mean > *filter.max_mean) {
    return InvalidArgument("filter.min_mean: ", *filter.min_mean, " is above filter.max_mean ",
                           *filter.max_mean, ": every group would be filtered");
  }
  if (replay.has_value()) {
    FRESHET_RETURN_IF_ERROR(replay->Validate());
    FRESHET_RETURN_IF_ERROR(AtLeast("staleness.max (with replay)", staleness.max, 1));
    FRESHET_RETURN_IF_ERROR(AtLeast("replay.max_age", replay->max_age, staleness.max + 1));
    FRESHET_RETURN_IF_ERROR(AtLeast("group_size (with replay)", group_size, 2));
    if (score_whole_groups) {
      return InvalidArgument(
          "replay: score_whole_groups: the reward of a success depends on its group");
    }
  }
  if (adaptive.has_value()) {
    FRESHET_RETURN_IF_ERROR(adaptive->Validate(group_size));
    FRESHET_RETURN_IF_ERROR(AtLeast("staleness.max (with adaptive)", staleness.max, 1));
    if (filter.zero_variance) {
      FRESHET_RETURN_IF_ERROR(AtLeast("adaptive.min_group_size (with filter_zero_variance)",
                                      adaptive->min_group_size, 2));
    }
  }
  if (lease_ttl <= absl::ZeroDuration() || lease_ttl > absl::Hours(24 * 365)) {
    return InvalidArgument("lease_ttl: ", absl::FormatDuration(lease_ttl),
                           " is out of range: use more than 0 and at most a year");
  }
  return AtLeast("capacity_groups", capacity_groups,
                 (staleness.max + 1) * staleness.groups_per_step);
}

StalenessOptions StoreOptions::BoundOf(bool replayed) const {
  StalenessOptions bound = staleness;
  if (!replayed || !replay.has_value()) return bound;
  bound.max = replay->max_age;
  bound.disposition = Disposition::kWait;
  return bound;
}

absl::Status StoreOrigin::Validate() const {
  // The epoch is the upper half of a fencing token.
  constexpr int64_t kMaxEpoch = int64_t{1} << 30;
  if (policy.lineage < 0 || policy.version < 0 || ledger_seq < 0 || cursor.low_water < 0) {
    return InvalidArgument("store origin: lineage ", policy.lineage, ", version ", policy.version,
                           ", ledger_seq ", ledger_seq, ", low_water ", cursor.low_water,
                           ": none may be negative");
  }
  if (epoch < 0 || epoch > kMaxEpoch) {
    return InvalidArgument("store origin: epoch ", epoch, " is out of range: use 0 to ", kMaxEpoch);
  }
  return absl::OkStatus();
}

absl::Status GenerationTotals::Validate() const {
  if (tokens >= 0 && idle >= absl::ZeroDuration() && swap >= absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  return InvalidArgument("generation totals: ", tokens, " tokens, idle ",
                         absl::FormatDuration(idle), ", swap ", absl::FormatDuration(swap),
                         ": none may be negative");
}

absl::Status TrajectoryStore::PutSample(int64_t token, int32_t index, Response response) {
  FRESHET_ASSIGN_OR_RETURN(
      const std::vector<absl::Status> statuses,
      PutSamples({{token, index, std::make_shared<const Response>(std::move(response))}}));
  return statuses.at(0);
}

absl::Status RowQueue::PutFields(Task task, int64_t token, FieldValues values) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<absl::Status> statuses,
                           PutRows(task, {{token, std::move(values)}}));
  return statuses.at(0);
}

}  // namespace freshet
