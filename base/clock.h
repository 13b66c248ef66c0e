#ifndef FRESHET_BASE_CLOCK_H_
#define FRESHET_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace freshet {

// Source of time, injected wherever a decision depends on it. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // A time that never goes backwards within one process.
  virtual absl::Time Now() const = 0;
};

// Monotonic clock of this host, anchored at the wall time of the first use.
class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  // The process-wide instance.
  static const SystemClock& Get();
};

}  // namespace freshet

#endif  // FRESHET_BASE_CLOCK_H_
