#include "tests/testing/in_memory_leader_lease.h"

#include "base/status_macros.h"

namespace freshet {

absl::StatusOr<LeaseState> InMemoryLeaderLease::TryAcquire(const std::string& candidate,
                                                           const std::string& address,
                                                           absl::Duration ttl) {
  FRESHET_RETURN_IF_ERROR(ValidateLeaderRequest(candidate, ttl));
  const absl::Time now = clock_.Now();
  MutexLock lock(mu_);
  const bool in_force = !leader_.empty() && now < expires_;
  if (leader_ != candidate && in_force) {
    return LeaseState{false, token_, leader_, address_, expires_ - now};
  }
  if (!in_force) ++token_;
  leader_ = candidate;
  address_ = address;
  expires_ = now + ttl;
  return LeaseState{true, token_, leader_, address_, ttl};
}

absl::StatusOr<LeaseState> InMemoryLeaderLease::Look() {
  const absl::Time now = clock_.Now();
  MutexLock lock(mu_);
  if (leader_.empty() || now >= expires_) return LeaseState{false, token_, "", "", {}};
  return LeaseState{false, token_, leader_, address_, expires_ - now};
}

absl::Status InMemoryLeaderLease::Release(const std::string& candidate, int64_t token) {
  MutexLock lock(mu_);
  if (leader_ != candidate || token_ != token) return absl::OkStatus();
  leader_.clear();
  address_.clear();
  return absl::OkStatus();
}

}  // namespace freshet
