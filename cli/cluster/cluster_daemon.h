#ifndef FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_

#include "absl/time/time.h"
#include "cli/cluster/cluster_layout.h"

namespace freshet {

struct DaemonOptions {
  // Descriptor for progress lines during the start; closed once the cluster is up. -1: stderr.
  int progress_fd = -1;
  absl::Duration up_timeout = absl::Seconds(90);
};

// The line on progress_fd that means that everything is ready.
inline constexpr char kUpLine[] = "READY";

// Runs a cluster in this process until SIGTERM or SIGINT and returns the exit code: 0 if stopped, 1
// if it did not come up (a role died three times, or timeout), 3 if its folder is unusable or held
// by another supervisor, 130 after a second signal. No child process outlives it. Call it before
// the process has other threads.
int RunClusterDaemon(const ClusterLayout& layout, const DaemonOptions& options);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_
