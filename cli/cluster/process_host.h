#ifndef FRESHET_CLI_CLUSTER_PROCESS_HOST_H_
#define FRESHET_CLI_CLUSTER_PROCESS_HOST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/cluster_plan.h"

namespace freshet {

struct ProcessEvent {
  enum class Kind { kLine, kExited };
  Kind kind = Kind::kLine;
  ProcessId id;
  std::string line;   // kLine: of its stdout, without the newline
  int exit_code = 0;  // kExited; -1 if killed by a signal
  int signal = 0;
};

// Identifies a process despite reuse of its pid.
struct ProcessStamp {
  int64_t pid = 0;
  int64_t start_ticks = 0;  // since boot
};

// Interface to start and watch processes of this machine. A process dies with the host that started
// it. Used by one thread, which lives as long as the processes.
class ProcessHost {
 public:
  virtual ~ProcessHost() = default;
  // argv[0] is a path. Output goes to the log of the process. FAILED_PRECONDITION: it cannot be
  // started; RESOURCE_EXHAUSTED: process limit reached.
  virtual absl::StatusOr<ProcessStamp> Start(const ProcessId& id,
                                             const std::vector<std::string>& argv) = 0;
  // No effect if the process has ended.
  virtual void Signal(const ProcessId& id, int signal) = 0;
  // Returns events; waits at most `timeout` for one.
  virtual std::vector<ProcessEvent> Wait(absl::Duration timeout) = 0;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_PROCESS_HOST_H_
