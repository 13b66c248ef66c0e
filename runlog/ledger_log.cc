#include "runlog/ledger_log.h"

#include <cstdint>

#include "base/status_macros.h"
#include "runlog/jsonl.h"

namespace freshet {

absl::StatusOr<LedgerLog> LedgerLog::Open(const std::string& path) {
  const absl::StatusOr<uint64_t> cut = CutTornLine(path);
  if (!cut.ok() && !absl::IsNotFound(cut.status())) return cut.status();
  FRESHET_ASSIGN_OR_RETURN(LineAppender appender, LineAppender::Open(path));
  return LedgerLog(std::move(appender));
}

absl::Status LedgerLog::Append(const std::vector<LedgerRow>& rows) {
  if (rows.empty()) return absl::OkStatus();
  std::string lines;
  for (const LedgerRow& row : rows) {
    lines += LedgerRowToJson(row);
    lines += '\n';
  }
  return appender_.Append(lines);
}

}  // namespace freshet
