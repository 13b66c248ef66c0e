#ifndef FRESHET_TESTS_TESTING_MEMORY_LIMIT_H_
#define FRESHET_TESTS_TESTING_MEMORY_LIMIT_H_

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitized.h"

namespace freshet {

// Makes blocks above 1 MiB return their pages when they are freed, and keeps threads from reserving
// memory, so that what the process has is what it uses.
inline void KeepNoSpareMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_ARENA_MAX, 1);
}

// Lets this process, a child of a test, map `more_bytes` more than it has.
inline void LimitMemory(int64_t more_bytes) {
  ::malloc_trim(0);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + more_bytes);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

// Ends the child with `status` as the last line of its error output.
[[noreturn]] inline void ExitWith(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(0);
}

// Expects that `statement`, run in a child process, ends in ExitWith with a text like `pattern`.
#define FRESHET_EXPECT_IN_CHILD(statement, pattern)                              \
  if (kSanitized) GTEST_SKIP() << "sanitizers map memory at will: test skipped"; \
  testing::FLAGS_gtest_death_test_style = "threadsafe";                          \
  EXPECT_EXIT(                                                                   \
      {                                                                          \
        KeepNoSpareMemory();                                                     \
        statement;                                                               \
      },                                                                         \
      testing::ExitedWithCode(0), pattern)

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_MEMORY_LIMIT_H_
