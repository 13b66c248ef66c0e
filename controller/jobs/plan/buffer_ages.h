#ifndef FRESHET_CONTROLLER_JOBS_PLAN_BUFFER_AGES_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_BUFFER_AGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Since when the oldest prompt group of each state has been in it, estimated from how many entered
// the state and how many are there, as if groups left it in the order in which they came. So it
// says that nothing of a state moves, or how long all of it takes to pass; one group that is stuck
// while others pass does not show. Exact to the time between two readings while that order holds;
// groups that were there at the first reading count from then. Confined to one thread.
class BufferAges {
 public:
  void Take(const StoreStats& stats, absl::Time now);
  // InfiniteFuture when the state holds no group, and for states that nothing leaves.
  absl::Time oldest(GroupState state) const { return oldest_[static_cast<size_t>(state)]; }

 private:
  // At `time` the number of groups that had entered was seen to be `entered`.
  struct Reading {
    int64_t entered = 0;
    absl::Time time;
  };
  struct Readings {
    std::deque<Reading> all;
    absl::Duration spacing;  // of readings; what comes sooner counts as of the last one
  };
  // Of one state; beyond, the spacing doubles: ages become coarser, not wrong.
  static constexpr size_t kMaxReadings = 512;

  std::array<Readings, kNumGroupStates> readings_;
  std::array<absl::Time, kNumGroupStates> oldest_ = Empty();

  static std::array<absl::Time, kNumGroupStates> Empty() {
    std::array<absl::Time, kNumGroupStates> times;
    times.fill(absl::InfiniteFuture());
    return times;
  }
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_BUFFER_AGES_H_
