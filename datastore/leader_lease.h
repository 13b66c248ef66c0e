#ifndef FRESHET_DATASTORE_LEADER_LEASE_H_
#define FRESHET_DATASTORE_LEADER_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

// Snapshot of the leadership.
struct LeaseState {
  bool held = false;         // by the calling candidate
  int64_t token = 0;         // fencing token of the holder
  std::string leader;        // name of the holder
  std::string address;       // address at which the holder serves
  absl::Duration remaining;  // until the lease expires, by the backend's clock
};

// Leadership of a cluster: at most one candidate holds it. A candidate's name identifies one
// process run ("controller-1#8f3a") and is never reused. Time is the backend's clock. A holder must
// stop acting `remaining` after the time at which it sent the request, and passes its token with
// every write, so that late writes are rejected.
//
// Errors: INVALID_ARGUMENT (empty candidate, or a ttl below 1 ms or above 1 h); UNAVAILABLE,
// RESOURCE_EXHAUSTED and PERMISSION_DENIED from the backend (Redis only). Thread-safe.
class LeaderLease {
 public:
  virtual ~LeaderLease() = default;

  // Acquires the lease if it is free or expired, or renews it (and updates the address) if the
  // candidate holds it; otherwise returns the current holder. The token increases with every
  // acquisition, also when the same candidate reacquires an expired or released lease, and stays
  // the same on renewal.
  virtual absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate,
                                                const std::string& address, absl::Duration ttl) = 0;
  // Returns the current holder without acquiring: `held` is false; `leader` is "" if the lease is
  // free.
  virtual absl::StatusOr<LeaseState> Look() = 0;
  // Frees the lease. OK without effect if another candidate holds it or the token differs.
  virtual absl::Status Release(const std::string& candidate, int64_t token) = 0;
};

constexpr absl::Duration kMaxLeaderTtl = absl::Hours(1);

// Checks shared by all adapters.
absl::Status ValidateLeaderRequest(const std::string& candidate, absl::Duration ttl);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_LEADER_LEASE_H_
