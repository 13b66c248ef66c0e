#ifndef FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_

#include "absl/time/time.h"
#include "cli/cluster/cluster_layout.h"

namespace freshet {

struct DaemonOptions {
  // Where lines about the start go, one each, until the cluster is up; then it is closed. -1:
  // stderr, for as long as the process lives.
  int progress_fd = -1;
  absl::Duration up_timeout = absl::Seconds(90);
};

// The line that says on progress_fd: everything is ready.
inline constexpr char kUpLine[] = "READY";

// Runs a cluster in this process until SIGTERM or SIGINT and returns the exit code: 0 when it was
// stopped, 1 when it did not come up (a role died three times, or the time was up), 3 when its
// folder cannot be used or another supervisor has it, 130 at a second signal. Nothing that it has
// started outlives it. To be called before the process has other threads.
int RunClusterDaemon(const ClusterLayout& layout, const DaemonOptions& options);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_DAEMON_H_
