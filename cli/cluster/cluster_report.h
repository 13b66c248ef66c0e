#ifndef FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/cluster/cluster_state.h"

namespace freshet {

bool ClusterRuns(const std::string& name);

// The state that its supervisor wrote last. NOT_FOUND: there is none.
absl::StatusOr<ClusterState> ReadClusterState(const std::string& name);

// A table of the processes; asks each for its health (for at most 0.5 s).
std::string DescribeCluster(const ClusterState& state);

// Kills the processes left by a dead supervisor and removes its state. Returns their number.
int RemoveStrays(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_
