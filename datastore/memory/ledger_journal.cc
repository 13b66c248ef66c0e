#include "datastore/memory/ledger_journal.h"

#include <algorithm>
#include <utility>

namespace freshet {

void LedgerJournal::Append(LedgerRow row) {
  row.seq = ++last_seq_;
  rows_.push_back(std::move(row));
}

std::vector<LedgerRow> LedgerJournal::Read(int64_t after_seq, int64_t max_rows) const {
  if (rows_.empty() || max_rows <= 0 || after_seq >= last_seq_) return {};
  const int64_t first = rows_.front().seq;
  const int64_t skip = std::max<int64_t>(0, after_seq + 1 - first);
  const int64_t count = std::min(max_rows, backlog() - skip);
  return {rows_.begin() + skip, rows_.begin() + skip + count};
}

void LedgerJournal::Trim(int64_t upto_seq) {
  while (!rows_.empty() && rows_.front().seq <= upto_seq) rows_.pop_front();
}

}  // namespace freshet
