#ifndef FRESHET_DATASTORE_REDIS_REDIS_LEASES_H_
#define FRESHET_DATASTORE_REDIS_REDIS_LEASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_blobs.h"
#include "datastore/redis/redis_reading.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Workers' leases of groups (rollouts) and rows (rewards). Meaning and errors as in
// TrajectoryStore; other errors as in RedisScriptRunner. The arguments of the constructor must
// outlive the object. Thread-safe.
class RedisLeases {
 public:
  RedisLeases(RedisScriptRunner& runner, const RedisBlobReader& reader, RedisMemoryGauge& memory)
      : runner_(runner), reader_(reader), memory_(memory), config_(runner.config()) {}

  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request);
  absl::StatusOr<std::vector<int64_t>> Renew(const std::string& worker,
                                             const std::vector<int64_t>& tokens);
  absl::Status Return(int64_t token, const std::vector<int32_t>& indices,
                      const std::vector<Response>& partials);
  // FailLease and HandBackLease.
  absl::Status GiveUp(int64_t token, LeaseEnd end, const std::string& reason);

  absl::StatusOr<std::vector<RowLease>> LeaseRows(const RowRequest& request);
  absl::Status EndRow(int64_t token, RowEnd end, const std::string& reason);

 private:
  RedisScriptRunner& runner_;
  const RedisBlobReader& reader_;
  RedisMemoryGauge& memory_;
  const RedisStoreConfig& config_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_LEASES_H_
