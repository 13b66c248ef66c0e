#ifndef FRESHET_BASE_BACKOFF_H_
#define FRESHET_BASE_BACKOFF_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "base/random.h"

namespace freshet {

// The wait after the `failures`-th failure in a row: `first`, doubled with each, at most `max`.
// failures >= 1.
inline absl::Duration BackoffDelay(int64_t failures, absl::Duration first, absl::Duration max) {
  const int64_t doublings = std::min<int64_t>(failures - 1, 62);
  return std::min(first * (int64_t{1} << doublings), max);
}

// Waits between attempts: growing by `multiplier` from `initial` to `max`, each one drawn between
// (1 - jitter) and 1 of that. The same seed gives the same waits. Confined to one thread.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(50);
    absl::Duration max = absl::Seconds(2);
    double multiplier = 2.0;
    double jitter = 0.5;
    uint64_t seed = 0;
  };

  explicit Backoff(const Options& options) : options_(options), next_(options.initial) {}

  absl::Duration Next() {
    const double u = ToUniform(RandomBits(options_.seed, draws_++));
    const absl::Duration wait = next_ * (1.0 - options_.jitter * u);
    next_ = std::min(next_ * options_.multiplier, options_.max);
    return wait;
  }
  // The next wait starts from `initial` again.
  void Reset() { next_ = options_.initial; }

 private:
  const Options options_;
  absl::Duration next_;
  uint64_t draws_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_BASE_BACKOFF_H_
