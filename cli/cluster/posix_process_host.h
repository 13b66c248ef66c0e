#ifndef FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_
#define FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/process_host.h"

namespace freshet {

// Child processes of this one. The kernel kills them with SIGKILL when the thread that made this
// object ends, however it ends; each leads a process group, so that Ctrl-C on a terminal reaches us
// alone. Output is written to rotating logs. SIGINT, SIGTERM and SIGCHLD are blocked in the thread
// that makes the object and arrive through Wait: make it before other threads begin.
class PosixProcessHost final : public ProcessHost {
 public:
  // `log_file` gives the path of a process's log.
  explicit PosixProcessHost(std::function<std::string(const ProcessId&)> log_file);
  // Kills what still runs.
  ~PosixProcessHost() override;

  absl::StatusOr<ProcessStamp> Start(const ProcessId& id,
                                     const std::vector<std::string>& argv) override;
  void Signal(const ProcessId& id, int signal) override;
  std::vector<ProcessEvent> Wait(absl::Duration timeout) override;

  // SIGINT and SIGTERM that have come.
  int stop_signals() const { return stop_signals_; }

 private:
  struct Child;

  void ReadOutput(Child& child, bool is_stdout, std::vector<ProcessEvent>& events);
  void ReadSignals();
  void Reap(std::vector<ProcessEvent>& events);

  const std::function<std::string(const ProcessId&)> log_file_;
  int signal_fd_ = -1;
  int stop_signals_ = 0;
  std::map<ProcessId, std::unique_ptr<Child>> children_;
};

// Start of a process in clock ticks since boot; 0 when there is no such process.
int64_t StartTicks(int64_t pid);

// Does exactly this process run?
bool Runs(const ProcessStamp& stamp);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_
