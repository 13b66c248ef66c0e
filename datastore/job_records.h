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

// Hash tag of the cluster's own keys, in place of a job id. No job may have this id.
constexpr char kClusterTag[] = "freshet";

// Authorizes the removal of a job's data from the datastore.
struct JobRemoval {
  std::string job;
  // Stores with a larger generation (StoreOptions) belong to a newer job with the same id and are
  // kept.
  int64_t generation = 0;
  int64_t fence = 0;  // the caller's leadership token, checked like that of a record write
};

// Durable records of a cluster's jobs, written only by the active controller. Revisions increase
// with every write to the store and are never reused, even for deleted records. `fence` is the
// writer's leadership token (leader_lease.h).
//
// Errors of all writes:
//   INVALID_ARGUMENT: empty id, id over kMaxRecordIdBytes, value over kMaxRecordBytes, or fence
//     outside 0..kMaxFence.
//   FAILED_PRECONDITION: the store has seen a larger fence. Checked and recorded atomically with
//     the write.
//   UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED: backend errors (Redis only). After
//     UNAVAILABLE the write may have happened: read the record and compare.
// Thread-safe.
class JobRecordStore {
 public:
  virtual ~JobRecordStore() = default;

  // Returns the revision. ALREADY_EXISTS: the id has a record. RESOURCE_EXHAUSTED: kMaxRecords
  // reached.
  virtual absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                         int64_t fence) = 0;
  // Returns the new revision. ABORTED: the record's revision differs. NOT_FOUND: no record.
  virtual absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                         const std::string& value, int64_t fence) = 0;
  // NOT_FOUND: no record. DATA_LOSS: the record is unreadable.
  virtual absl::StatusOr<StoredRecord> Get(const std::string& id) = 0;
  // Returns all records, sorted by id. Each record is consistent, but the list is not a snapshot.
  virtual absl::StatusOr<std::vector<StoredRecord>> List() = 0;
  // OK if there is no record.
  virtual absl::Status Delete(const std::string& id, int64_t fence) = 0;
  // Rejects smaller fences from now on. A new leader calls it before its first read.
  virtual absl::Status Fence(int64_t fence) = 0;
};

// Checks and errors shared by all adapters.
absl::Status ValidateRecordWrite(const std::string& id, const std::string& value, int64_t fence);
absl::Status ValidateRecordFence(int64_t fence);
absl::Status RecordFencedError(int64_t fence, int64_t seen);
absl::Status RecordExistsError(const std::string& id);
absl::Status RecordRevisionError(const std::string& id, int64_t expected, int64_t found);
absl::Status RecordNotFoundError(const std::string& id);
absl::Status TooManyRecordsError();

}  // namespace freshet

#endif  // FRESHET_DATASTORE_JOB_RECORDS_H_
