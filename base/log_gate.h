#ifndef FRESHET_BASE_LOG_GATE_H_
#define FRESHET_BASE_LOG_GATE_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace freshet {

// Keeps what fails again and again from filling the log: a cause is written when it is another one
// than before, and once a period while it stays. Confined to one thread.
class LogGate {
 public:
  explicit LogGate(absl::Duration period = absl::Minutes(1)) : period_(period) {}

  // Is `cause`, met at `now`, to be written?
  bool Admit(std::string_view cause, absl::Time now) {
    if (cause == cause_ && now < next_) return false;
    cause_ = cause;
    next_ = now + period_;
    return true;
  }

 private:
  const absl::Duration period_;
  std::string cause_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_BASE_LOG_GATE_H_
