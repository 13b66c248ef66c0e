#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "datastore/memory/job_state.h"

namespace freshet {
namespace {

std::string Elapsed(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

uint32_t JobState::TakeChanges() { return std::exchange(changes_, 0); }

void JobState::CountGeneration(const GenerationTotals& added) {
  GenerationTotals& totals = counters_.generation;
  totals.tokens += added.tokens;
  totals.idle += absl::Trunc(added.idle, absl::Microseconds(1));
  totals.swap += absl::Trunc(added.swap, absl::Microseconds(1));
}

StoreStats JobState::Stats() const {
  StoreStats stats = counters_;
  groups_.Describe(stats);
  stats.committed_version = steps_.version();
  stats.capacity_used = CapacityUsed();
  stats.ledger_backlog = ledger_.backlog();
  stats.filtered_in_a_row = filtered_in_a_row_;
  stats.pooled_successes = pool_.size();
  stats.ended_by_reason.assign(ended_by_reason_.begin(), ended_by_reason_.end());
  stats.skipped_by_reason.assign(skipped_by_reason_.begin(), skipped_by_reason_.end());
  return stats;
}

PromptCursor JobState::Cursor() const {
  const auto live = [](const Group& group) {
    return group.state != GroupState::kTrained && group.state != GroupState::kDurable;
  };
  PromptCursor cursor;
  cursor.low_water = high_water_ + 1;
  for (const auto& [ordinal, group] : groups_.groups()) {
    if (!live(group)) continue;
    cursor.low_water = ordinal;
    break;
  }
  // Every ordinal up to the high-water mark that is not live has ended or can never occur.
  auto it = groups_.groups().upper_bound(cursor.low_water);
  for (int64_t ordinal = cursor.low_water + 1; ordinal <= high_water_; ++ordinal) {
    while (it != groups_.groups().end() && it->first < ordinal) ++it;
    const bool found = it != groups_.groups().end() && it->first == ordinal;
    if (!found || !live(it->second)) cursor.above.push_back(ordinal);
  }
  for (const int64_t ordinal : origin_above_) {
    if (ordinal > high_water_) cursor.above.push_back(ordinal);
  }
  // Ended ordinals adjacent to the low-water mark raise it.
  size_t reached = 0;
  if (cursor.low_water == high_water_ + 1) {
    while (reached < cursor.above.size() && cursor.above[reached] == cursor.low_water) {
      ++cursor.low_water;
      ++reached;
    }
  }
  cursor.above.erase(cursor.above.begin(),
                     cursor.above.begin() + static_cast<std::ptrdiff_t>(reached));
  return cursor;
}

std::vector<GroupAge> JobState::OutstandingAges() const {
  std::vector<GroupAge> ages;
  for (const int64_t ordinal : groups_.outstanding_ordinals()) {
    const Group& group = groups_.groups().at(ordinal);
    if (group.state != GroupState::kClaimed) ages.push_back(group.Age());
  }
  return ages;
}

Explanation JobState::BlockingGroup(const Group& group, absl::Time now) const {
  int64_t unscored = 0;
  int64_t held = 0;
  for (const SampleSlot& slot : group.samples) {
    unscored += slot.score == nullptr ? 1 : 0;
    held += slot.row.stage == RowProgress::Stage::kLeased ? 1 : 0;
  }
  const std::string name = StrCat("group ", group.ordinal);
  switch (group.state) {
    case GroupState::kLeased:
      return {"rollout",
              StrCat(name, " is leased to ", group.worker, " since ", Elapsed(now - group.since),
                     ", ", group.NumFinished(), " of ", group.size(), " samples finished")};
    case GroupState::kRequeued:
      return {"rollout", StrCat(name, " waits in the queue since ", Elapsed(now - group.since),
                                " for an engine at version >= ", group.ContinueVersion())};
    case GroupState::kGenerated:
      return {"reward",
              StrCat(name, " has ", unscored, " rows unscored, ", held, " of them leased; in all ",
                     rows_.pending(), " rows wait and ", rows_.held(), " are leased")};
    default:
      return {"staleness", StrCat(name, " is ", freshet::Name(group.state), " with min version ",
                                  group.min_version)};
  }
}

// No group is outstanding: explains why there are no new ones.
Explanation JobState::BlockingSupply() const {
  if (StoreFull()) {
    return {"store", StrCat("store full: ", groups_.outstanding(), " groups outstanding and ",
                            groups_.Count(GroupState::kTrained), " trained but not durable, of ",
                            options_.capacity_groups, ": a checkpoint must become durable")};
  }
  if (groups_.queue().empty()) {
    return {"prompts", StrCat("prompt queue empty, last ordinal ", high_water_)};
  }
  std::string text = StrCat(groups_.queue().size(), " prompts queued, but none is leased");
  for (const auto& [worker, note] : engines_) {
    if (note.refusal.empty()) continue;
    text += StrCat("; ", worker, " at version ", note.version.version, " was told: ", note.refusal);
    if (text.size() > 600) break;
  }
  return {"rollout", text};
}

Explanation JobState::Blocking(const ConsumptionDecision& decision, absl::Time now) const {
  Explanation edge = decision.waits_for.has_value()
                         ? BlockingGroup(groups_.groups().at(*decision.waits_for), now)
                         : BlockingSupply();
  edge.text = StrCat(decision.reason, ": ", edge.text);
  return edge;
}

Explanation JobState::Explain(absl::Time now) {
  ExpireLeases(now);
  const int64_t step = steps_.version() + 1;
  if (!paused_.empty() && claimed_.empty()) return {"paused", StrCat("job paused: ", paused_)};
  if (step > options_.last_step) {
    return {"done", StrCat("all ", options_.last_step, " steps are committed")};
  }
  if (epoch_open_ && redo_next_ <= steps_.version()) {
    return {"trainer", StrCat("the trainer redoes step ", redo_next_, " of ", steps_.version())};
  }
  if (!claimed_.empty()) {
    const Group& first = groups_.groups().at(claimed_.front());
    return {"trainer", StrCat("step ", step, " is claimed by epoch ", epoch_, " since ",
                              Elapsed(now - first.since), " and not committed")};
  }
  const ConsumptionDecision decision =
      DecideConsumption(options_.staleness, steps_.version(), OutstandingAges());
  if (!decision.claim) return Blocking(decision, now);
  return {"trainer", StrCat("step ", step, " has its groups, but ",
                            epoch_open_ ? "the trainer has not asked" : "no trainer is there")};
}

std::vector<DeadLetter> JobState::DeadLetters(int64_t max_letters) const {
  const int64_t count = std::min(max_letters, std::ssize(dead_letters_));
  return {dead_letters_.begin(), dead_letters_.begin() + count};
}

}  // namespace freshet
