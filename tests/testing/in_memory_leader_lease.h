#ifndef FRESHET_TESTS_TESTING_IN_MEMORY_LEADER_LEASE_H_
#define FRESHET_TESTS_TESTING_IN_MEMORY_LEADER_LEASE_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/leader_lease.h"

namespace freshet {

// Leadership within one process, timed by `clock`. Thread-safe.
class InMemoryLeaderLease final : public LeaderLease {
 public:
  // `clock` must outlive this object.
  explicit InMemoryLeaderLease(const Clock& clock) : clock_(clock) {}

  absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate, const std::string& address,
                                        absl::Duration ttl) override;
  absl::StatusOr<LeaseState> Look() override;
  absl::Status Release(const std::string& candidate, int64_t token) override;

 private:
  const Clock& clock_;
  Mutex mu_;
  std::string leader_ ABSL_GUARDED_BY(mu_);
  std::string address_ ABSL_GUARDED_BY(mu_);
  int64_t token_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time expires_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_IN_MEMORY_LEADER_LEASE_H_
