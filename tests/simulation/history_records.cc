#include "tests/simulation/history_records.h"

#include "base/str_cat.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

void HistoryRecords::Add(const std::string& id, int64_t fence, int64_t begin, int64_t revision,
                         const std::string& value) {
  std::string state;
  JobRecord record;
  if (id.starts_with("job/") && !value.empty() && record.ParseFromString(value)) {
    state = StateName(record.state());
  }
  history_.Add(StrCat(R"("event":"record","id":")", id, R"(","fence":)", fence, R"(,"begin":)",
                      begin, R"(,"revision":)", revision, R"(,"state":")", state, "\""));
}

absl::StatusOr<int64_t> HistoryRecords::Create(const std::string& id, const std::string& value,
                                               int64_t fence) {
  const int64_t begin = History::Now();
  absl::StatusOr<int64_t> revision = records_.Create(id, value, fence);
  if (revision.ok()) Add(id, fence, begin, *revision, value);
  return revision;
}

absl::StatusOr<int64_t> HistoryRecords::Update(const std::string& id, int64_t expected_revision,
                                               const std::string& value, int64_t fence) {
  const int64_t begin = History::Now();
  absl::StatusOr<int64_t> revision = records_.Update(id, expected_revision, value, fence);
  if (revision.ok()) Add(id, fence, begin, *revision, value);
  return revision;
}

absl::Status HistoryRecords::Delete(const std::string& id, int64_t fence) {
  const int64_t begin = History::Now();
  const absl::Status status = records_.Delete(id, fence);
  if (status.ok()) Add(id, fence, begin, /*revision=*/0, "");
  return status;
}

absl::Status HistoryRecords::Fence(int64_t fence) {
  const int64_t begin = History::Now();
  const absl::Status status = records_.Fence(fence);
  if (status.ok()) Add("", fence, begin, /*revision=*/0, "");
  return status;
}

}  // namespace freshet
