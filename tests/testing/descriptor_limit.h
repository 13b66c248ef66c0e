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

// The soft limit of this process' descriptors, put back at the end. Those that are open stay.
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

// Low descriptors that are taken while others are opened and free afterwards, below a limit that
// those others exceed: UBSan looks at an object of a new type through a pipe.
class LowDescriptors {
 public:
  LowDescriptors() {
    for (UniqueFd& fd : fds_) fd = UniqueFd(::dup(STDERR_FILENO));
  }
  void Free() { fds_ = {}; }

 private:
  std::array<UniqueFd, 4> fds_;
};

// The descriptor that the next socket gets.
inline int NextDescriptor() {
  const int fd = ::dup(STDERR_FILENO);
  ::close(fd);
  return fd;
}

// Of all threads so far.
inline absl::Duration ProcessCpuTime() {
  timespec used{};
  EXPECT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_DESCRIPTOR_LIMIT_H_
