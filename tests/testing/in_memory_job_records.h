#ifndef FRESHET_TESTS_TESTING_IN_MEMORY_JOB_RECORDS_H_
#define FRESHET_TESTS_TESTING_IN_MEMORY_JOB_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "datastore/job_records.h"

namespace freshet {

// Job records in memory. Thread-safe.
class InMemoryJobRecords final : public JobRecordStore {
 public:
  absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                 int64_t fence) override;
  absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                 const std::string& value, int64_t fence) override;
  absl::StatusOr<StoredRecord> Get(const std::string& id) override;
  absl::StatusOr<std::vector<StoredRecord>> List() override;
  absl::Status Delete(const std::string& id, int64_t fence) override;
  absl::Status Fence(int64_t fence) override;

 private:
  absl::Status AdmitFence(int64_t fence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::map<std::string, StoredRecord> records_ ABSL_GUARDED_BY(mu_);
  int64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t fence_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_IN_MEMORY_JOB_RECORDS_H_
