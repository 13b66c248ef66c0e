#include "tests/testing/in_memory_job_records.h"

#include "base/status_macros.h"

namespace freshet {

absl::Status InMemoryJobRecords::AdmitFence(int64_t fence) {
  if (fence < fence_) return RecordFencedError(fence, fence_);
  fence_ = fence;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InMemoryJobRecords::Create(const std::string& id, const std::string& value,
                                                   int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, value, fence));
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(AdmitFence(fence));
  if (records_.count(id) > 0) return RecordExistsError(id);
  if (static_cast<int64_t>(records_.size()) >= kMaxRecords) return TooManyRecordsError();
  records_[id] = {id, ++revision_, value};
  return revision_;
}

absl::StatusOr<int64_t> InMemoryJobRecords::Update(const std::string& id, int64_t expected_revision,
                                                   const std::string& value, int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, value, fence));
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(AdmitFence(fence));
  const auto found = records_.find(id);
  if (found == records_.end()) return RecordNotFoundError(id);
  StoredRecord& record = found->second;
  if (record.revision != expected_revision) {
    return RecordRevisionError(id, expected_revision, record.revision);
  }
  record.revision = ++revision_;
  record.value = value;
  return revision_;
}

absl::StatusOr<StoredRecord> InMemoryJobRecords::Get(const std::string& id) {
  MutexLock lock(mu_);
  const auto found = records_.find(id);
  if (found == records_.end()) return RecordNotFoundError(id);
  return found->second;
}

absl::StatusOr<std::vector<StoredRecord>> InMemoryJobRecords::List() {
  MutexLock lock(mu_);
  std::vector<StoredRecord> records;
  records.reserve(records_.size());
  for (const auto& [id, record] : records_) records.push_back(record);
  return records;
}

absl::Status InMemoryJobRecords::Delete(const std::string& id, int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, "", fence));
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(AdmitFence(fence));
  records_.erase(id);
  return absl::OkStatus();
}

absl::Status InMemoryJobRecords::Fence(int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordFence(fence));
  MutexLock lock(mu_);
  return AdmitFence(fence);
}

}  // namespace freshet
