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

// Writes ledger.jsonl, the export of the store's ledger. Confined to one thread at a time.
class LedgerLog {
 public:
  // Opens for appending. Creates the file if absent, and removes a torn last line.
  static absl::StatusOr<LedgerLog> Open(const std::string& path);

  // Appends all rows with one write(2), so a kill leaves a prefix of them and at most one torn
  // line. RESOURCE_EXHAUSTED: disk full, nothing written. FAILED_PRECONDITION: other errors.
  absl::Status Append(const std::vector<LedgerRow>& rows);
  absl::Status Sync() { return appender_.Sync(); }

 private:
  explicit LedgerLog(LineAppender appender) : appender_(std::move(appender)) {}
  LineAppender appender_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_LOG_H_
