#include "weights/weight_sync_observer.h"

namespace freshet {

const char* WeightPhaseName(WeightPhase phase) {
  switch (phase) {
    case WeightPhase::kWait:
      return "wait";
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

}  // namespace freshet
