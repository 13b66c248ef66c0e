#include "rollout/openai/request_counts.h"

namespace freshet::openai {

Outcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Outcome::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAborted:
      return Outcome::kInvalid;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return Outcome::kDenied;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kFull;
    case absl::StatusCode::kUnavailable:
      return Outcome::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kLate;
    case absl::StatusCode::kCancelled:
      return Outcome::kGone;
    default:
      return Outcome::kFailed;
  }
}

}  // namespace freshet::openai
