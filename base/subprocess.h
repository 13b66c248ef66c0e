#ifndef FRESHET_BASE_SUBPROCESS_H_
#define FRESHET_BASE_SUBPROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

struct SubprocessOptions {
  std::vector<std::string> argv;         // the first is a path
  std::vector<std::string> environment;  // "NAME=VALUE", added to this process's
  int standard_input = -1;               // a descriptor; -1: /dev/null
  bool output_to_stderr = false;         // standard output goes to this process's standard error
  int standard_output = -1;              // a descriptor; -1: this process's, or as above
  int standard_error = -1;               // a descriptor; -1: this process's
};

// A program that this process has started, in a process group of its own, so that Ctrl-C does not
// reach it. It gets no other descriptors. Thread-safe.
class Subprocess {
 public:
  // UNAVAILABLE: it cannot be started; the message names it.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(const SubprocessOptions& options);
  // Kills it.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  // Kills it and its process group. Ending() then returns soon.
  void Kill();
  // Sends it a signal, if it has not ended.
  void Signal(int signal);
  // Waits until it has ended or `timeout` has passed. Returns whether it has ended.
  bool WaitFor(absl::Duration timeout);
  // Waits until it has ended. OK if its exit code is 0; else UNAVAILABLE, "has ended with exit code
  // 1" or "was ended by signal 9". The rest of its process group is killed.
  absl::Status Ending();
  // Its exit code, or 128 and the number of the signal that ended it. Waits like Ending().
  int ExitCode();

 private:
  explicit Subprocess(pid_t pid) : pid_(pid) {}
  bool HasEnded();

  const pid_t pid_;
  Mutex mu_;
  bool reaped_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status ending_ ABSL_GUARDED_BY(mu_);
  int exit_code_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace freshet

#endif  // FRESHET_BASE_SUBPROCESS_H_
