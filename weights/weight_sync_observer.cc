#include "weights/weight_sync_observer.h"

#include <algorithm>

namespace freshet {

const char* WeightPhaseName(WeightPhase phase) {
  switch (phase) {
    case WeightPhase::kStage:
      return "stage";
    case WeightPhase::kTransfer:
      return "transfer";
    case WeightPhase::kVerify:
      return "verify";
    case WeightPhase::kActivate:
      return "activate";
  }
  return "";
}

const char* WeightFailureCause(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
      return "refused";
    case absl::StatusCode::kDataLoss:
      return "corrupt";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    case absl::StatusCode::kUnavailable:
      return "unavailable";
    case absl::StatusCode::kCancelled:
      return "departed";
    case absl::StatusCode::kResourceExhausted:
      return "no_memory";
    default:
      return "other";
  }
}

void WeightSyncCounters::OnPhase(WeightPhase phase, absl::Duration took) {
  const auto i = static_cast<size_t>(phase);
  MutexLock lock(mu_);
  totals_.seconds[i] += absl::ToDoubleSeconds(took);
  ++totals_.count[i];
}

void WeightSyncCounters::OnBytes(int64_t bytes) {
  MutexLock lock(mu_);
  totals_.bytes += bytes;
}

void WeightSyncCounters::OnFailure(const char* cause) {
  MutexLock lock(mu_);
  ++totals_.failures[cause];
}

void WeightSyncCounters::OnMembers(const std::string& job, const char* route,
                                   const std::vector<absl::Duration>& took) {
  (void)job;
  MutexLock lock(mu_);
  Totals::Members& of_route = totals_.members[route];
  ++of_route.publications;
  of_route.members += static_cast<int64_t>(took.size());
  of_route.slowest_seconds += absl::ToDoubleSeconds(*std::max_element(took.begin(), took.end()));
}

WeightSyncCounters::Totals WeightSyncCounters::totals() const {
  MutexLock lock(mu_);
  return totals_;
}

}  // namespace freshet
