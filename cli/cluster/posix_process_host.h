#ifndef FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_
#define FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/process_host.h"

namespace freshet {

// Child processes of this one. The kernel sends them SIGKILL when the thread that created this
// object ends for any reason. Each one leads a process group, so that Ctrl-C on a terminal reaches
// only the supervisor. Output goes to rotating logs. SIGINT, SIGTERM and SIGCHLD are blocked in the
// creating thread and delivered through Wait: create the object before other threads.
class PosixProcessHost final : public ProcessHost {
 public:
  explicit PosixProcessHost(std::function<std::string(const ProcessId&)> log_file);
  ~PosixProcessHost() override;

  absl::StatusOr<ProcessStamp> Start(const ProcessId& id,
                                     const std::vector<std::string>& argv) override;
  void Signal(const ProcessId& id, int signal) override;
  std::vector<ProcessEvent> Wait(absl::Duration timeout) override;

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

// Start time of a process in clock ticks since boot; 0 if it does not exist.
int64_t StartTicks(int64_t pid);

// Whether exactly this process is running.
bool Runs(const ProcessStamp& stamp);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_POSIX_PROCESS_HOST_H_
