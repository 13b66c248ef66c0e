#ifndef FRESHET_BASE_CLOCK_H_
#define FRESHET_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace freshet {

// Injected source of time. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes backwards within one process.
  virtual absl::Time Now() const = 0;
};

// Monotonic clock, anchored at the wall-clock time of its first use.
class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  // The process-wide instance.
  static const SystemClock& Get();
};

}  // namespace freshet

#endif  // FRESHET_BASE_CLOCK_H_
