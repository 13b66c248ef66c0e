#include "services/local/dead_group_guard.h"

#include <string>

#include "controller/jobs/death_reason.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

int64_t Entered(const StoreStats& stats, GroupState state) {
  return stats.transitions[static_cast<size_t>(state)];
}

// Why the last group died, as far as the ledger still has it; else the label with its count.
absl::StatusOr<std::string> LastReason(TrajectoryStore& store, const StoreStats& stats) {
  FRESHET_ASSIGN_OR_RETURN(std::string reason, LastDeath(store, stats));
  if (!reason.empty()) return reason;
  for (const auto& [label, groups] : stats.ended_by_reason) {
    if (label.starts_with("dead(")) reason = StrCat(label, " ", groups, " times");
  }
  return reason;
}

}  // namespace

absl::Status DeadGroupGuard::Check(TrajectoryStore& store) {
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store.Stats());
  const int64_t scored = Entered(stats, GroupState::kScored);
  const int64_t dead = Entered(stats, GroupState::kDead);
  if (scored != scored_seen_) {
    scored_seen_ = scored;
    dead_before_ = dead;
  }
  if (dead - dead_before_ < kMostDeadInARow) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(const std::string reason, LastReason(store, stats));
  return FailedPrecondition("the last ", dead - dead_before_,
                            " prompt groups died and none could be scored; the last one: ", reason);
}

}  // namespace freshet
