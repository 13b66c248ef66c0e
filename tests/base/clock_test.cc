#include "base/clock.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(SystemClock, NeverGoesBackwards) {
  const Clock& clock = SystemClock::Get();
  absl::Time last = clock.Now();
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, InstancesShareOneAnchor) {
  const SystemClock other;
  const absl::Time before = SystemClock::Get().Now();
  const absl::Time between = other.Now();
  const absl::Time after = SystemClock::Get().Now();
  EXPECT_LE(before, between);
  EXPECT_LE(between, after);
}

}  // namespace
}  // namespace freshet
