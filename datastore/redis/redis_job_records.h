#ifndef FRESHET_DATASTORE_REDIS_REDIS_JOB_RECORDS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_JOB_RECORDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datastore/job_records.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

inline constexpr char kRecordsMetaKey[] = "{freshet}:jobs:meta";

// Job records of a cluster in Redis.
//
// Schema: hash `{freshet}:jobs`: id -> "REVISION VALUE". Hash `{freshet}:jobs:meta`: `revision`
//   (last one issued), `fence` (largest seen).
// Atomicity: each write is one script. List reads the ids, then the records in slices.
// Failure: errors as in RedisClient; after UNAVAILABLE a write may have happened.
// Thread-safe.
class RedisJobRecords final : public JobRecordStore {
 public:
  explicit RedisJobRecords(std::shared_ptr<RedisClient> client) : client_(std::move(client)) {}

  absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                 int64_t fence) override;
  absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                 const std::string& value, int64_t fence) override;
  absl::StatusOr<StoredRecord> Get(const std::string& id) override;
  absl::StatusOr<std::vector<StoredRecord>> List() override;
  absl::Status Delete(const std::string& id, int64_t fence) override;
  absl::Status Fence(int64_t fence) override;

 private:
  absl::StatusOr<int64_t> Write(const char* operation, const std::string& id, int64_t fence,
                                int64_t expected, const std::string& value);

  std::shared_ptr<RedisClient> client_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_JOB_RECORDS_H_
