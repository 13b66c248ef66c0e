#ifndef FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/cluster/cluster_state.h"

namespace freshet {

// Does a supervisor run the cluster of this name?
bool ClusterRuns(const std::string& name);

// What its supervisor wrote down last. NOT_FOUND: it wrote nothing.
absl::StatusOr<ClusterState> ReadClusterState(const std::string& name);

// A table of the processes, each asked for its health (for at most half a second).
std::string DescribeCluster(const ClusterState& state);

// Kills the processes that a dead supervisor has left, and forgets its state. Their number.
int RemoveStrays(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_REPORT_H_
