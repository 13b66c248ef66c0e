#ifndef FRESHET_TESTS_TESTING_DESCRIPTOR_LIMIT_H_
#define FRESHET_TESTS_TESTING_DESCRIPTOR_LIMIT_H_

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace freshet {

// Sets the soft limit of open descriptors while it exists. Open descriptors stay open.
class SoftDescriptorLimit {
 public:
  explicit SoftDescriptorLimit(rlim_t soft) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &former_), 0);
    const rlimit limit{soft, former_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~SoftDescriptorLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &former_), 0); }
  SoftDescriptorLimit(const SoftDescriptorLimit&) = delete;
  SoftDescriptorLimit& operator=(const SoftDescriptorLimit&) = delete;

 private:
  rlimit former_{};
};

// Reserves low descriptor numbers until Free(), so that pipes can still be opened when all others
// exceed the limit. UBSan opens a pipe to inspect an object of a new type.
class LowDescriptors {
 public:
  LowDescriptors() {
    for (UniqueFd& fd : fds_) fd = UniqueFd(::dup(STDERR_FILENO));
  }
  void Free() { fds_ = {}; }

 private:
  std::array<UniqueFd, 4> fds_;
};

// Returns the number that the next descriptor will get.
inline int NextDescriptor() {
  const int fd = ::dup(STDERR_FILENO);
  ::close(fd);
  return fd;
}

// CPU time of all threads of the process.
inline absl::Duration ProcessCpuTime() {
  timespec used{};
  EXPECT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_DESCRIPTOR_LIMIT_H_
