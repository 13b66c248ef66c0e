#include "services/sandbox/worker/supervision.h"

#include <cerrno>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

TEST(DecideStart, BoundsTheProcessesAndThreadsOfAProgram) {
  EXPECT_EQ(DecideStart(0, 2, false).error, 0);
  EXPECT_EQ(DecideStart(1, 2, false).error, 0);
  EXPECT_EQ(DecideStart(2, 2, false).error, EAGAIN);
  EXPECT_EQ(DecideStart(0, 0, false).error, EAGAIN);
}

TEST(DecideStart, NothingStartsWhileTheProgramIsEnded) {
  EXPECT_EQ(DecideStart(0, 2, true).error, EAGAIN);
}

TEST(DecideSignal, OnlyTheProgramsOwnProcesses) {
  const std::vector<pid_t> members = {10, 12};
  for (const pid_t own : {10, 12, 0, -10, -12}) {
    EXPECT_EQ(DecideSignal(own, members).error, 0) << own;
  }
  for (const pid_t other : {1, -1, 11, -11, 13, std::numeric_limits<pid_t>::min()}) {
    EXPECT_EQ(DecideSignal(other, members).error, EPERM) << other;
    EXPECT_STRNE(DecideSignal(other, members).reason, "");
  }
}

TEST(DecideThreadSignal, OnlyTheCallerItself) {
  EXPECT_EQ(DecideThreadSignal(10, 10).error, 0);
  for (const pid_t other : {11, 1, 0, -1, -10}) {
    EXPECT_EQ(DecideThreadSignal(other, 10).error, ENOSYS) << other;
  }
}

}  // namespace
}  // namespace freshet::sandbox
