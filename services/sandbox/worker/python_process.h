#ifndef FRESHET_SERVICES_SANDBOX_WORKER_PYTHON_PROCESS_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_PYTHON_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {

// How a process has ended.
struct ProcessEnd {
  int exit_code = 0;  // -N: by signal N
  double cpu_seconds = 0;
};
// From a wait status.
int ExitCode(int status);

// A warm Python interpreter, a child of this process, that forks itself for every program
// (interpreter.py). Only for a process with one thread.
class PythonProcess {
 public:
  // `library`: FreshetConfine as a shared library. UNAVAILABLE: it does not start; the message says
  // why.
  static absl::StatusOr<std::unique_ptr<PythonProcess>> Start(const std::string& python,
                                                              const std::string& library);
  ~PythonProcess();

  pid_t pid() const { return pid_; }
  // What programs must be able to read.
  const std::vector<std::string>& paths() const { return paths_; }
  // Forks a process that confines itself as `control` says. UNAVAILABLE: Python has ended.
  absl::Status Fork(int control) const;
  // Waits for the end of the process that was forked last. UNAVAILABLE: there is none in time.
  absl::StatusOr<ProcessEnd> AwaitEnd(absl::Duration timeout) const;

 private:
  PythonProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}

  const pid_t pid_;
  const UniqueFd socket_;
  std::vector<std::string> paths_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_PYTHON_PROCESS_H_
