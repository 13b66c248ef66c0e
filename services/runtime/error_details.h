#ifndef FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_
#define FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet::runtime {

// One field of a request that is wrong: google.rpc.BadRequest.FieldViolation.
struct FieldViolation {
  std::string field;  // path in the request, "spec.staleness.max"
  std::string description;
  bool operator==(const FieldViolation&) const = default;
};

// What a caller can act on beside a status's code. Carried by absl::Status as payloads, and over
// gRPC as google.rpc details (ErrorInfo with domain "freshet", RetryInfo, BadRequest).
struct ErrorDetails {
  std::string reason{};  // UPPER_SNAKE_CASE, constant per kind of error: "NOT_LEADER"
  std::map<std::string, std::string> metadata{};
  std::optional<absl::Duration> retry_after{};
  std::vector<FieldViolation> violations{};
  bool operator==(const ErrorDetails&) const = default;
};

// `status` with the details that are set. An OK status is returned as it is.
absl::Status WithDetails(absl::Status status, const ErrorDetails& details);

// The details of `status`; empty fields where it has none, or not readable ones.
ErrorDetails DetailsOf(const absl::Status& status);

// Metadata key under which a standby names the active controller, and the reason it goes with.
inline constexpr char kLeaderMetadata[] = "leader";
inline constexpr char kNotLeaderReason[] = "NOT_LEADER";
// Reason of a standby that passed a call on to a leader which is gone: nobody knows what became of
// the call, and another controller will lead.
inline constexpr char kLeaderAwayReason[] = "LEADER_AWAY";

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_ERROR_DETAILS_H_
