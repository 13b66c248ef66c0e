#include "base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace freshet {
namespace {

struct Anchor {
  absl::Time wall = absl::Now();
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
};

}  // namespace

absl::Time SystemClock::Now() const {
  static const Anchor anchor;
  return anchor.wall + absl::FromChrono(std::chrono::steady_clock::now() - anchor.steady);
}

const SystemClock& SystemClock::Get() {
  static const SystemClock clock;
  return clock;
}

}  // namespace freshet
