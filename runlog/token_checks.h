#ifndef FRESHET_RUNLOG_TOKEN_CHECKS_H_
#define FRESHET_RUNLOG_TOKEN_CHECKS_H_

#include <cstdint>

#include "runlog/ledger_line.h"
#include "runlog/lineage_tree.h"
#include "runlog/violations.h"

namespace freshet {

// What the `trained` row `line`, at `line_number`, says about the versions of its tokens. Both add
// their violations.

// The spans cover the response in order, and are of versions that the row's lineage descends from.
void CheckSpans(int64_t line_number, const LedgerLine& line, const LineageTree& lineages,
                Violations& violations);
// No token with a loss is more than `bound` versions old.
void CheckAge(int64_t line_number, const LedgerLine& line, int64_t bound, Violations& violations);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_TOKEN_CHECKS_H_
