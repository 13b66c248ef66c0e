#ifndef FRESHET_RUNLOG_LEDGER_LOG_H_
#define FRESHET_RUNLOG_LEDGER_LOG_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "datastore/ledger.h"

namespace freshet {

// Writer of ledger.jsonl, the export of the store's ledger. Confined to one thread at a time.
class LedgerLog {
 public:
  // Opens for appending, creating the file when absent; a torn last line is cut off first.
  static absl::StatusOr<LedgerLog> Open(const std::string& path);

  // Appends all rows by one write(2), so that a kill leaves a prefix of them and at most one torn
  // line. RESOURCE_EXHAUSTED when the disk is full (nothing is left of them), else
  // FAILED_PRECONDITION.
  absl::Status Append(const std::vector<LedgerRow>& rows);
  absl::Status Sync() { return appender_.Sync(); }

 private:
  explicit LedgerLog(LineAppender appender) : appender_(std::move(appender)) {}
  LineAppender appender_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_LOG_H_
