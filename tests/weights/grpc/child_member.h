#ifndef FRESHET_TESTS_WEIGHTS_GRPC_CHILD_MEMBER_H_
#define FRESHET_TESTS_WEIGHTS_GRPC_CHILD_MEMBER_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {

// A child process that runs a disabled test of this binary, SUITE.TEST, and reports one line. It
// inherits the environment.
class Child {
 public:
  explicit Child(const std::string& test) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const int told = ::fcntl(ends[1], F_DUPFD, 0);  // survives the exec
    std::vector<std::string> words = {"child", "--gtest_also_run_disabled_tests",
                                      "--gtest_filter=" + test};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::setenv(kPipe, std::to_string(told).c_str(), 1);
    EXPECT_EQ(::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ),
              0);
    ::close(told);
    ::close(ends[1]);
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1 && byte != '\n') line_.push_back(byte);
    ::close(ends[0]);
    EXPECT_NE(line_, "") << "the child told nothing";
  }
  ~Child() { Kill(); }
  void Signal(int number) const { ::kill(pid_, number); }
  void Kill() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  const std::string& line() const { return line_; }

  // In the child: reports `line` and waits to be killed.
  static void TellAndWait(const std::string& line) {
    const std::string text = line + "\n";
    const int fd = std::atoi(std::getenv(kPipe));
    if (::write(fd, text.data(), text.size()) < 0) ::_exit(1);
    while (true) ::pause();
  }

 private:
  static constexpr char kPipe[] = "FRESHET_TEST_PIPE";
  pid_t pid_ = 0;
  std::string line_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_GRPC_CHILD_MEMBER_H_
