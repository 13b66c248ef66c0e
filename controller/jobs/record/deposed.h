#ifndef FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace freshet {

inline constexpr char kDeposedPayload[] = "freshet/deposed";

// `status`, an error, marked as one of a controller that led and found, before it did anything,
// that it does not lead any more: the same call may be made to the one that does.
inline absl::Status Deposed(absl::Status status) {
  status.SetPayload(kDeposedPayload, absl::Cord("1"));
  return status;
}

// What the record store said to a Create or an Update that was all that a call has tried to write:
// FAILED_PRECONDITION of these two says that the writer is fenced.
inline absl::Status DeposedIfFenced(const absl::Status& written) {
  return written.code() == absl::StatusCode::kFailedPrecondition ? Deposed(written) : written;
}

inline bool IsDeposed(const absl::Status& status) {
  return status.GetPayload(kDeposedPayload).has_value();
}

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_DEPOSED_H_
