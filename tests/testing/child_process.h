#ifndef FRESHET_TESTS_TESTING_CHILD_PROCESS_H_
#define FRESHET_TESTS_TESTING_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace freshet {

// Exit status and output of a process.
struct ChildResult {
  int exit_code = -1;      // -1 if killed by a signal
  int signal = 0;          // the signal that killed it; 0: none
  bool timed_out = false;  // killed by Wait() after its timeout
  std::string out;
  std::string err;
};

struct ChildOptions {
  std::string directory;  // working directory; empty: inherited
  std::string input;      // written to stdin
};

// A child process, killed when this object or the test process ends. Only the waiting calls read
// its output, so a child that writes a lot blocks until one of them runs. Confined to one thread.
class ChildProcess {
 public:
  // argv[0] is the path of the program. The exit code is 127 if it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& argv, const ChildOptions& options = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal);
  // Waits until stdout or stderr contains `text`. Returns false if the process ends or `timeout`
  // passes first.
  bool AwaitOutput(const std::string& text, absl::Duration timeout);
  // Waits for the process to exit; kills it after `timeout`.
  ChildResult Wait(absl::Duration timeout);

 private:
  // Reads available output, waiting at most `timeout`. Returns false once both outputs are closed.
  bool Pump(absl::Duration timeout);

  pid_t pid_ = -1;
  bool reaped_ = false;
  int out_ = -1;
  int err_ = -1;
  ChildResult result_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_CHILD_PROCESS_H_
