#ifndef FRESHET_DATASTORE_REDIS_REDIS_LEADER_LEASE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_LEADER_LEASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "datastore/leader_lease.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Leadership of a cluster in Redis.
//
// Schema: hash `{freshet}:leader`: `leader`, `address`, `token`, `expires` (microseconds since the
//   epoch). It never expires as a key, so that the token only grows.
// Atomicity: each operation is one script.
// Failure: errors as of RedisClient. After UNAVAILABLE the lease may have been taken or renewed;
//   asking again is harmless.
// Loopholes: a clock that the server's host sets back lengthens the lease, one set forward ends it
//   early; the token fences the former holder's writes all the same.
// Thread-safe.
class RedisLeaderLease final : public LeaderLease {
 public:
  // Without a `clock` the time is the server's own. With one (it outlives the object), the scripts
  // are given its time.
  explicit RedisLeaderLease(std::shared_ptr<RedisClient> client, const Clock* clock = nullptr)
      : client_(std::move(client)), clock_(clock) {}

  absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate, const std::string& address,
                                        absl::Duration ttl) override;
  absl::StatusOr<LeaseState> Look() override;
  absl::Status Release(const std::string& candidate, int64_t token) override;

 private:
  // In microseconds; "": the server's own.
  std::string Now() const;

  std::shared_ptr<RedisClient> client_;
  const Clock* clock_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_LEADER_LEASE_H_
