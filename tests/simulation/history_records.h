#ifndef FRESHET_TESTS_SIMULATION_HISTORY_RECORDS_H_
#define FRESHET_TESTS_SIMULATION_HISTORY_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "datastore/job_records.h"
#include "tests/simulation/history.h"

namespace freshet {

// Records the accepted writes of a controller with their fences and the resulting job states. The
// constructor's arguments must outlive it. Thread-safe.
class HistoryRecords final : public JobRecordStore {
 public:
  HistoryRecords(JobRecordStore& records, History& history)
      : records_(records), history_(history) {}

  absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                 int64_t fence) override;
  absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                 const std::string& value, int64_t fence) override;
  absl::StatusOr<StoredRecord> Get(const std::string& id) override { return records_.Get(id); }
  absl::StatusOr<std::vector<StoredRecord>> List() override { return records_.List(); }
  absl::Status Delete(const std::string& id, int64_t fence) override;
  absl::Status Fence(int64_t fence) override;

 private:
  // `revision` and `value`: the written record, if any. `begin`: start time of the write.
  void Add(const std::string& id, int64_t fence, int64_t begin, int64_t revision,
           const std::string& value);

  JobRecordStore& records_;
  History& history_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_HISTORY_RECORDS_H_
