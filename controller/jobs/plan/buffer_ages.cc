#include "controller/jobs/plan/buffer_ages.h"

namespace freshet {
namespace {

bool IsEnd(GroupState state) {
  return state == GroupState::kDurable || state == GroupState::kFiltered ||
         state == GroupState::kDropped || state == GroupState::kDead;
}

}  // namespace

void BufferAges::Take(const StoreStats& stats, absl::Time now) {
  for (size_t i = 0; i < kNumGroupStates; ++i) {
    if (IsEnd(static_cast<GroupState>(i))) continue;
    std::deque<Reading>& all = readings_[i].all;
    absl::Duration& spacing = readings_[i].spacing;
    const int64_t entered = stats.transitions[i];
    if (all.empty() || (entered > all.back().entered && now - all.back().time >= spacing)) {
      all.push_back({entered, now});
    } else {
      all.back().entered = entered;
    }
    // Under FIFO order, the oldest group still in the state has this entry number.
    const int64_t oldest = entered - stats.groups[i] + 1;
    while (all.size() > 1 && all.front().entered < oldest) all.pop_front();
    oldest_[i] = stats.groups[i] > 0 ? all.front().time : absl::InfiniteFuture();
    if (stats.groups[i] == 0) spacing = absl::ZeroDuration();
    if (all.size() <= kMaxReadings) continue;
    spacing = 2 * (all.back().time - all.front().time) / kMaxReadings;
    std::deque<Reading> coarser;
    for (size_t r = 0; r < all.size(); r += 2) {
      const size_t last = r + 1 < all.size() ? r + 1 : r;
      coarser.push_back({all[last].entered, all[r].time});
    }
    all.swap(coarser);
  }
}

}  // namespace freshet
