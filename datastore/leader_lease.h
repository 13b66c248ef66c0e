#ifndef FRESHET_DATASTORE_LEADER_LEASE_H_
#define FRESHET_DATASTORE_LEADER_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

// Who leads, as of one moment.
struct LeaseState {
  bool held = false;         // by the candidate that asked
  int64_t token = 0;         // fencing token of the holder
  std::string leader;        // name of the holder
  std::string address;       // where the holder serves
  absl::Duration remaining;  // until the holder's lease ends, by the backend's clock
};

// The leadership of a cluster: at most one candidate holds it. A candidate's name is that of one
// process run ("controller-1#8f3a"), never used again by another. The lease's time is the backend's
// own clock. A holder acts only within `remaining` of the moment before it asked, and passes its
// token with every write, so that a late one is refused.
//
// Errors: INVALID_ARGUMENT (an empty candidate, a ttl under a millisecond or above an hour), and
// the backend's UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED (Redis only). Thread-safe.
class LeaderLease {
 public:
  virtual ~LeaderLease() = default;

  // Takes the lease when it is free, has ended or is the candidate's own (which renews it and sets
  // the address); else tells who holds it. The token grows by at least 1 whenever the lease is
  // taken, also by the candidate that held it before it ended or was released, and stays while the
  // holder renews.
  virtual absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate,
                                                const std::string& address, absl::Duration ttl) = 0;
  // Who holds the lease, for those that do not want it now: `held` is false, and `leader` is ""
  // while nobody holds it.
  virtual absl::StatusOr<LeaseState> Look() = 0;
  // Frees the lease at once. OK and without effect when another holds it or the token is another.
  virtual absl::Status Release(const std::string& candidate, int64_t token) = 0;
};

constexpr absl::Duration kMaxLeaderTtl = absl::Hours(1);

// The checks that all adapters share.
absl::Status ValidateLeaderRequest(const std::string& candidate, absl::Duration ttl);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_LEADER_LEASE_H_
