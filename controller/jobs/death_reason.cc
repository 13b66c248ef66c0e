#include "controller/jobs/death_reason.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "services/base/status_macros.h"
#include "services/runtime/utf8.h"

namespace freshet {
namespace {

// How far back the last death is looked for, and rows that may have come since the statistics.
constexpr int64_t kRowsBack = 4096;
constexpr int64_t kRowsSince = 1024;
constexpr size_t kMaxReasonBytes = 300;

}  // namespace

absl::StatusOr<std::string> LastDeath(TrajectoryStore& store, const StoreStats& stats) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> oldest, store.ReadLedger(0, 1));
  if (oldest.empty()) return std::string();
  const int64_t before_oldest = oldest.front().seq - 1;
  const int64_t after = before_oldest + std::max<int64_t>(0, stats.ledger_backlog - kRowsBack);
  FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                           store.ReadLedger(after, kRowsBack + kRowsSince));
  const auto dead = std::find_if(rows.rbegin(), rows.rend(), [](const LedgerRow& row) {
    return row.event == LedgerEvent::kDead;
  });
  if (dead == rows.rend()) return std::string();
  // The store cuts by bytes, and what a scorer says may have several lines.
  std::string reason = runtime::ValidUtf8(dead->reason.substr(0, kMaxReasonBytes));
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

}  // namespace freshet
