#include "datastore/job_records.h"

#include "base/str_cat.h"

namespace freshet {

absl::Status ValidateRecordWrite(const std::string& id, const std::string& value, int64_t fence) {
  if (id.empty()) return InvalidArgument("record id is empty");
  if (id.size() > static_cast<size_t>(kMaxRecordIdBytes)) {
    return InvalidArgument("record id of ", id.size(), " bytes is above ", kMaxRecordIdBytes);
  }
  if (value.size() > static_cast<size_t>(kMaxRecordBytes)) {
    return InvalidArgument("record '", id, "' of ", value.size(), " bytes is above ",
                           kMaxRecordBytes);
  }
  return ValidateRecordFence(fence);
}

absl::Status ValidateRecordFence(int64_t fence) {
  if (fence >= 0 && fence <= kMaxFence) return absl::OkStatus();
  return InvalidArgument("job records: fence ", fence, " is not between 0 and ", kMaxFence);
}

absl::Status RecordFencedError(int64_t fence, int64_t seen) {
  return FailedPrecondition("job records: fence ", fence, " is older than ", seen,
                            ": another controller leads");
}

absl::Status RecordExistsError(const std::string& id) {
  return StatusOf(absl::StatusCode::kAlreadyExists, "job record '", id, "' exists");
}

absl::Status RecordRevisionError(const std::string& id, int64_t expected, int64_t found) {
  return StatusOf(absl::StatusCode::kAborted, "job record '", id, "' has revision ", found,
                  ", not ", expected);
}

absl::Status RecordNotFoundError(const std::string& id) {
  return NotFound("job record '", id, "' does not exist");
}

absl::Status TooManyRecordsError() {
  return ResourceExhausted("job records: all ", kMaxRecords, " are in use: delete finished jobs");
}

}  // namespace freshet
