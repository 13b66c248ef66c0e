#ifndef FRESHET_CLI_CLUSTER_CLUSTER_STATE_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_STATE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/supervisor.h"

namespace freshet {

// State that a supervisor writes for `freshet cluster` (cluster.json).
struct ClusterState {
  std::string name;
  ProcessStamp supervisor;
  absl::Time started;
  bool ready = false;  // everything that is wanted
  bool stopping = false;
  std::string controller;  // addresses of all controllers, separated by commas
  int redis_port = 0;
  std::map<std::string, int> wanted;  // by group, at the start
  std::vector<ProcessRecord> processes;
};

std::string StateToJson(const ClusterState& state);
// INVALID_ARGUMENT naming the key.
absl::StatusOr<ClusterState> ParseState(std::string_view text, const std::string& source);

// One line per process. `health` has the result of each process's HTTP port, by name: "ready", "not
// ready", "no answer".
std::string FormatState(const ClusterState& state, const std::map<std::string, std::string>& health,
                        absl::Time now);

// Address of a running controller's status page, "http://HOST:PORT/"; "" if there is none.
std::string StatusPage(const ClusterState& state);

const char* PhaseName(Phase phase);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_STATE_H_
