#ifndef FRESHET_ROLLOUT_ENGINE_PHASE_CLOCK_H_
#define FRESHET_ROLLOUT_ENGINE_PHASE_CLOCK_H_

#include <chrono>

namespace freshet {

// Parts of an engine's step.
enum class Phase {
  kOther,      // norms, rotations, activations, scheduling
  kMatrices,   // products of the layers
  kAttention,  // over cached keys and values
  kHead,       // logits
  kSampling,   // and the check of logits
};
constexpr int kNumPhases = 5;

// Adds up the wall time of each phase. Reads the clock once per change of phase, about 10 times a
// layer. Not thread-safe.
class PhaseClock {
 public:
  // Ends the current phase.
  void Enter(Phase phase) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<int>(current_)] += std::chrono::duration<double>(now - since_).count();
    current_ = phase;
    since_ = now;
  }
  // Time since creation that was spent in `phase`, without the current one. kOther includes the
  // time between steps.
  double seconds(Phase phase) const { return seconds_[static_cast<int>(phase)]; }

 private:
  double seconds_[kNumPhases] = {};
  Phase current_ = Phase::kOther;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_PHASE_CLOCK_H_
