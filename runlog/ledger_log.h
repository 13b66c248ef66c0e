#ifndef FRESHET_RUNLOG_LEDGER_LOG_H_
#define FRESHET_RUNLOG_LEDGER_LOG_H_

#include <string>

#include "datastore/ledger.h"
#include "runlog/jsonl.h"

namespace freshet {

// Writes ledger.jsonl, the export of the store's ledger.
using LedgerLog = JsonlLog;
inline std::string ToJson(const LedgerRow& row) { return LedgerRowToJson(row); }

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_LOG_H_
