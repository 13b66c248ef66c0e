#ifndef FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_
#define FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet::runtime {

// An invalid field of a request: google.rpc.BadRequest.FieldViolation.
struct FieldViolation {
  std::string field;  // path in the request, "spec.staleness.max"
  std::string description;
  bool operator==(const FieldViolation&) const = default;
};

// Machine-readable details of an error. Carried by absl::Status as payloads, and over gRPC as
// google.rpc details (ErrorInfo with domain "freshet", RetryInfo, BadRequest).
struct ErrorDetails {
  std::string reason{};  // UPPER_SNAKE_CASE, constant per kind of error: "NOT_LEADER"
  std::map<std::string, std::string> metadata{};
  std::optional<absl::Duration> retry_after{};
  std::vector<FieldViolation> violations{};
  bool operator==(const ErrorDetails&) const = default;
};

// `status` with the details that are set. An OK status is returned unchanged.
absl::Status WithDetails(absl::Status status, const ErrorDetails& details);

// The details of `status`; missing or malformed ones are empty.
ErrorDetails DetailsOf(const absl::Status& status);

// Metadata key under which a standby names the active controller, and the reason of that error.
inline constexpr char kLeaderMetadata[] = "leader";
inline constexpr char kNotLeaderReason[] = "NOT_LEADER";
// Reason of a standby whose forwarded call lost its leader: the call may have been executed, and
// another controller will lead.
inline constexpr char kLeaderAwayReason[] = "LEADER_AWAY";

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_
