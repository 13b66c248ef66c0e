#ifndef FRESHET_BASE_LOG_GATE_H_
#define FRESHET_BASE_LOG_GATE_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace freshet {

// Rate-limits repeated errors in the log: admits a cause when it differs from the previous one, and
// then once per period. Confined to one thread.
class LogGate {
 public:
  explicit LogGate(absl::Duration period = absl::Minutes(1)) : period_(period) {}

  // Returns whether to log `cause` at `now`.
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
