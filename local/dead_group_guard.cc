#include "local/dead_group_guard.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/death_reason.h"

namespace freshet {
namespace {

int64_t Entered(const StoreStats& stats, GroupState state) {
  return stats.transitions[static_cast<size_t>(state)];
}

// Logs one line for each of the newest `count` dead groups, oldest first; only the newest few of a
// burst.
absl::Status LogDeaths(TrajectoryStore& store, int64_t count) {
  constexpr int64_t kMostLines = 8;
  FRESHET_ASSIGN_OR_RETURN(const std::vector<DeadLetter> letters,
                           store.DeadLetters(std::min(count, kMostLines)));
  for (auto letter = letters.rbegin(); letter != letters.rend(); ++letter) {
    FRESHET_LOG(Warning) << "event=group_died prompt=" << letter->ordinal
                         << " attempt=" << letter->attempt
                         << " reason=" << LogQuoted(ReasonLine(*letter));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DeadGroupGuard::Check(TrajectoryStore& store) {
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store.Stats());
  const int64_t scored = Entered(stats, GroupState::kScored);
  const int64_t dead = Entered(stats, GroupState::kDead);
  if (dead > dead_seen_) {
    FRESHET_RETURN_IF_ERROR(LogDeaths(store, dead - dead_seen_));
    dead_seen_ = dead;
  }
  if (scored != scored_seen_) {
    scored_seen_ = scored;
    dead_before_ = dead;
  }
  if (dead - dead_before_ < kMostDeadInARow) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(const std::string reason, LastDeath(store));
  return FailedPrecondition("the last ", dead - dead_before_,
                            " prompt groups died and none could be scored; the last one: ", reason);
}

}  // namespace freshet
