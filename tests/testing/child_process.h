#ifndef FRESHET_TESTS_TESTING_CHILD_PROCESS_H_
#define FRESHET_TESTS_TESTING_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace freshet {

// How a process ended and what it wrote.
struct ChildResult {
  int exit_code = -1;      // -1 when a signal ended it
  int signal = 0;          // that ended it; 0: none
  bool timed_out = false;  // killed by us, because the deadline had passed
  std::string out;
  std::string err;
};

struct ChildOptions {
  std::string directory;  // to run in; empty: ours
  std::string input;      // on stdin
};

// A program that runs beside the test. It dies with this object, and with the test. What it writes
// is read by the waiting calls only, so a child with much to say needs one. Confined to one thread.
class ChildProcess {
 public:
  // argv[0] is the path of the program. A program that cannot be started exits with 127.
  explicit ChildProcess(const std::vector<std::string>& argv, const ChildOptions& options = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal);
  // Waits until stdout or stderr contains `text`; false when the process has ended, or `timeout`
  // has passed, without it.
  bool AwaitOutput(const std::string& text, absl::Duration timeout);
  // Waits for the end; after `timeout` the process is killed.
  ChildResult Wait(absl::Duration timeout);

 private:
  // Reads what there is, waiting for at most `timeout`. False once both outputs are closed.
  bool Pump(absl::Duration timeout);

  pid_t pid_ = -1;
  bool reaped_ = false;
  int out_ = -1;
  int err_ = -1;
  ChildResult result_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_CHILD_PROCESS_H_
