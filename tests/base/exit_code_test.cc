#include "base/exit_code.h"

#include <new>
#include <thread>

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(ExitCodeDeathTest, AnUncaughtBadAllocEndsTheProcessWithOneError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExitWhenOutOfMemory();
        ExitWhenOutOfMemory();
        std::thread([] { throw std::bad_alloc(); }).join();
      },
      testing::ExitedWithCode(kExitContent), "^freshet: out of memory\n$");
}

}  // namespace
}  // namespace freshet
