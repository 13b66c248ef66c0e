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
//   epoch). The key has no TTL, so the token never resets.
// Atomicity: each operation is one script.
// Failure: errors as in RedisClient. After UNAVAILABLE the lease may have been taken or renewed;
//   retrying is harmless.
// Limitation: setting the server host's clock back extends the lease, setting it forward ends it
//   early. The token still fences the former holder's writes.
// Thread-safe.
class RedisLeaderLease final : public LeaderLease {
 public:
  // Uses the server's clock unless `clock` is given, which must outlive this object.
  explicit RedisLeaderLease(std::shared_ptr<RedisClient> client, const Clock* clock = nullptr)
      : client_(std::move(client)), clock_(clock) {}

  absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate, const std::string& address,
                                        absl::Duration ttl) override;
  absl::StatusOr<LeaseState> Look() override;
  absl::Status Release(const std::string& candidate, int64_t token) override;

 private:
  // Microseconds; "" selects the server's clock.
  std::string Now() const;

  std::shared_ptr<RedisClient> client_;
  const Clock* clock_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_LEADER_LEASE_H_
