#ifndef FRESHET_LOCAL_STATE_RELOADS_H_
#define FRESHET_LOCAL_STATE_RELOADS_H_

#include <cstdint>

namespace freshet {

// Whether a run goes on from a checkpoint after the learner has lost its state: not more than three
// times in a row without a new step.
class StateReloads {
 public:
  // `committed`: the last step.
  bool Next(int64_t committed) {
    without_progress_ = committed > last_committed_ ? 0 : without_progress_ + 1;
    if (committed > last_committed_) last_committed_ = committed;
    return without_progress_ <= kMaxWithoutProgress;
  }

 private:
  static constexpr int64_t kMaxWithoutProgress = 3;
  int64_t last_committed_ = -1;
  int64_t without_progress_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_STATE_RELOADS_H_
