#ifndef FRESHET_CONTROLLER_JOBS_PLAN_BUFFER_AGES_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_BUFFER_AGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Estimates when the oldest prompt group of each state entered it, from the number of groups that
// entered the state and the number in it, assuming FIFO order. It detects that a state does not
// drain, or how long it takes to; a single stuck group does not show. Under FIFO order the error is
// at most the time between two readings. Groups present at the first reading count from then. Not
// thread-safe.
class BufferAges {
 public:
  void Take(const StoreStats& stats, absl::Time now);
  // InfiniteFuture if the state is empty, and for final states.
  absl::Time oldest(GroupState state) const { return oldest_[static_cast<size_t>(state)]; }

 private:
  // The total number of groups that had entered by `time`.
  struct Reading {
    int64_t entered = 0;
    absl::Time time;
  };
  struct Readings {
    std::deque<Reading> all;
    absl::Duration spacing;  // of readings; more frequent ones count as the previous one
  };
  // Per state. Beyond that the spacing doubles, which makes ages coarser but not wrong.
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
