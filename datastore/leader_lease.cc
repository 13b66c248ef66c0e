#include "datastore/leader_lease.h"

#include "base/str_cat.h"

namespace freshet {

absl::Status ValidateLeaderRequest(const std::string& candidate, absl::Duration ttl) {
  if (candidate.empty()) return InvalidArgument("leader lease: the candidate's name is empty");
  if (ttl < absl::Milliseconds(1) || ttl > kMaxLeaderTtl) {
    return InvalidArgument("leader lease: ttl ", absl::FormatDuration(ttl),
                           " is not between 1ms and ", absl::FormatDuration(kMaxLeaderTtl));
  }
  return absl::OkStatus();
}

}  // namespace freshet
