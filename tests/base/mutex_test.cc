#include "base/mutex.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

TEST(Mutex, LetsOneThreadInAtATime) {
  Mutex mu;
  int64_t counter = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20000; ++i) {
          const MutexLock lock(mu);
          counter = counter + 1;
        }
      });
    }
  }
  EXPECT_EQ(counter, 80000);
}

TEST(Notification, StartsUnsetAndStaysSet) {
  Notification notification;
  EXPECT_FALSE(notification.HasBeenNotified());
  EXPECT_FALSE(notification.WaitFor(absl::ZeroDuration()));
  notification.Notify();
  EXPECT_TRUE(notification.HasBeenNotified());
  EXPECT_TRUE(notification.WaitFor(absl::ZeroDuration()));
  EXPECT_TRUE(notification.WaitFor(absl::ZeroDuration()));
}

TEST(Notification, WakesEveryWaiter) {
  Notification go;
  Notification done[3];
  std::vector<std::jthread> threads;
  for (Notification& mine : done) {
    threads.emplace_back([&go, &mine] {
      if (go.WaitFor(kGuard)) mine.Notify();
    });
  }
  go.Notify();
  for (Notification& each : done) EXPECT_TRUE(each.WaitFor(kGuard));
}

TEST(Notification, OrdersWhatWasWrittenBeforeIt) {
  Notification ready;
  int value = 0;
  std::jthread writer([&] {
    value = 7;
    ready.Notify();
  });
  ASSERT_TRUE(ready.WaitFor(kGuard));
  EXPECT_EQ(value, 7);
}

TEST(CondVar, TimesOutWithTheLockHeld) {
  Mutex mu;
  CondVar cv;
  mu.Lock();
  // Spurious wake-ups are allowed, but one wait must time out.
  bool timed_out = false;
  for (int i = 0; i < 1000 && !timed_out; ++i) timed_out = !cv.WaitFor(mu, absl::Microseconds(1));
  EXPECT_TRUE(timed_out);
  Notification tried;
  Notification entered;
  std::jthread other([&] {
    tried.Notify();
    const MutexLock lock(mu);
    entered.Notify();
  });
  EXPECT_TRUE(tried.WaitFor(kGuard));
  EXPECT_FALSE(entered.HasBeenNotified());
  mu.Unlock();
  EXPECT_TRUE(entered.WaitFor(kGuard));
}

}  // namespace
}  // namespace freshet
