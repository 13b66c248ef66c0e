#ifndef FRESHET_BASE_TRANSIENT_H_
#define FRESHET_BASE_TRANSIENT_H_

#include "absl/status/status.h"

namespace freshet {

// Whether an operation that ended so may succeed if it is repeated unchanged: its server was away,
// too slow or overloaded, or another operation was in the way.
inline bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

// The same for an operation on the datastore, which denies permission while its password changes.
inline bool IsTransientStoreError(const absl::Status& status) {
  return IsTransient(status) || absl::IsPermissionDenied(status);
}

}  // namespace freshet

#endif  // FRESHET_BASE_TRANSIENT_H_
