#ifndef FRESHET_DATASTORE_MEMORY_LEDGER_JOURNAL_H_
#define FRESHET_DATASTORE_MEMORY_LEDGER_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "datastore/ledger.h"

namespace freshet {

// Ledger rows that are not trimmed yet. Confined to one thread at a time.
class LedgerJournal {
 public:
  explicit LedgerJournal(int64_t last_seq) : last_seq_(last_seq) {}

  // Assigns the next seq and appends the row.
  void Append(LedgerRow row);
  std::vector<LedgerRow> Read(int64_t after_seq, int64_t max_rows) const;
  void Trim(int64_t upto_seq);

  int64_t last_seq() const { return last_seq_; }
  int64_t backlog() const { return static_cast<int64_t>(rows_.size()); }

 private:
  int64_t last_seq_;
  std::deque<LedgerRow> rows_;  // consecutive seq, ending at last_seq_
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_LEDGER_JOURNAL_H_
