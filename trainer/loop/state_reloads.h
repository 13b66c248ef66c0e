#ifndef FRESHET_TRAINER_LOOP_STATE_RELOADS_H_
#define FRESHET_TRAINER_LOOP_STATE_RELOADS_H_

#include <cstdint>

namespace freshet {

// Whether training starts again from a checkpoint after the learner has lost its state: not more
// than three times in a row without a new step. Pure.
class StateReloads {
 public:
  // `committed`: the last step of all so far.
  bool Next(int64_t committed) {
    vain_ = committed > furthest_ ? 0 : vain_ + 1;
    if (committed > furthest_) furthest_ = committed;
    return vain_ < kMostVain;
  }

 private:
  static constexpr int64_t kMostVain = 3;
  int64_t furthest_ = -1;
  int64_t vain_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_STATE_RELOADS_H_
