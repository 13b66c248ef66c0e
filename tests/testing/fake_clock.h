#ifndef FRESHET_TESTS_TESTING_FAKE_CLOCK_H_
#define FRESHET_TESTS_TESTING_FAKE_CLOCK_H_

#include <atomic>

#include "absl/time/time.h"
#include "base/clock.h"

namespace freshet {

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixMicros(micros_.load()); }
  void Advance(absl::Duration by) { micros_ += absl::ToInt64Microseconds(by); }

 private:
  std::atomic<int64_t> micros_{1'000'000'000};
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_FAKE_CLOCK_H_
