#ifndef FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace freshet {

inline constexpr char kDeposedPayload[] = "freshet/deposed";

// Marks the error `status` as coming from a former leader that changed nothing: the same call may
// be retried on the current leader.
inline absl::Status Deposed(absl::Status status) {
  status.SetPayload(kDeposedPayload, absl::Cord("1"));
  return status;
}

// Converts the result of a Create or Update that was the call's only write: FAILED_PRECONDITION
// from these means that the writer is fenced.
inline absl::Status DeposedIfFenced(const absl::Status& written) {
  return written.code() == absl::StatusCode::kFailedPrecondition ? Deposed(written) : written;
}

inline bool IsDeposed(const absl::Status& status) {
  return status.GetPayload(kDeposedPayload).has_value();
}

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_
