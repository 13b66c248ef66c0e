#ifndef FRESHET_DATASTORE_JOB_RECORDS_H_
#define FRESHET_DATASTORE_JOB_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

struct StoredRecord {
  std::string id;
  int64_t revision = 0;
  std::string value;
};

constexpr int64_t kMaxRecordIdBytes = 128;
constexpr int64_t kMaxRecordBytes = int64_t{4} << 20;
constexpr int64_t kMaxRecords = 10'000;
constexpr int64_t kMaxFence = int64_t{1} << 53;  // server-side scripts count in doubles

// The cluster's own keys carry this tag where a job's carry its id: no job may have it as its id.
constexpr char kClusterTag[] = "freshet";

// Authorization to remove what the datastore holds of a job.
struct JobRemoval {
  std::string job;
  // A store of a larger generation (StoreOptions) belongs to a newer job of that id, and stays.
  int64_t generation = 0;
  int64_t fence = 0;  // the caller's leadership token, checked as for a write of a record
};

// Durable records of a cluster's jobs, written by the active controller only. A revision is a
// number that grows with every write to the store and is never used twice, deleted records
// included. `fence` is the writer's leadership token (leader_lease.h).
//
// Errors common to all writes:
//   INVALID_ARGUMENT: an empty id or one over kMaxRecordIdBytes, a value over kMaxRecordBytes, or a
//     fence outside 0..kMaxFence.
//   FAILED_PRECONDITION: the store has seen a larger fence; checked and recorded in the same atomic
//     operation as the write.
//   UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED: the backend (Redis only). After UNAVAILABLE
//     a write may have happened: read the record and compare.
// Thread-safe.
class JobRecordStore {
 public:
  virtual ~JobRecordStore() = default;

  // Returns the revision. ALREADY_EXISTS: the id has a record. RESOURCE_EXHAUSTED: kMaxRecords.
  virtual absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                         int64_t fence) = 0;
  // Returns the new revision. ABORTED: the record has another revision. NOT_FOUND: no record.
  virtual absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                         const std::string& value, int64_t fence) = 0;
  // NOT_FOUND: no record. DATA_LOSS: the record cannot be read.
  virtual absl::StatusOr<StoredRecord> Get(const std::string& id) = 0;
  // All records, sorted by id. Each is as of one moment, not all as of the same.
  virtual absl::StatusOr<std::vector<StoredRecord>> List() = 0;
  // OK also when there is no record.
  virtual absl::Status Delete(const std::string& id, int64_t fence) = 0;
  // Refuses smaller fences from now on: a new leader's first act, before it reads.
  virtual absl::Status Fence(int64_t fence) = 0;
};

// The checks and the errors that all adapters share.
absl::Status ValidateRecordWrite(const std::string& id, const std::string& value, int64_t fence);
absl::Status ValidateRecordFence(int64_t fence);
absl::Status RecordFencedError(int64_t fence, int64_t seen);
absl::Status RecordExistsError(const std::string& id);
absl::Status RecordRevisionError(const std::string& id, int64_t expected, int64_t found);
absl::Status RecordNotFoundError(const std::string& id);
absl::Status TooManyRecordsError();

}  // namespace freshet

#endif  // FRESHET_DATASTORE_JOB_RECORDS_H_
