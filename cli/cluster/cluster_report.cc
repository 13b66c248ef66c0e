#include "cli/cluster/cluster_report.h"

#include <signal.h>
#include <unistd.h>

#include <map>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/client/local_cluster.h"
#include "cli/cluster/cluster_up.h"
#include "cli/cluster/posix_process_host.h"
#include "services/runtime/http_client.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxStateBytes = 4 << 20;
constexpr absl::Duration kProbeTimeout = absl::Milliseconds(500);

std::string StateFile(const std::string& name) { return ClusterFolder(name) + "/cluster.json"; }

}  // namespace

bool ClusterRuns(const std::string& name) { return IsLocked(ClusterFolder(name) + "/lock"); }

absl::StatusOr<ClusterState> ReadClusterState(const std::string& name) {
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(StateFile(name), kMaxStateBytes));
  return ParseState(text, StateFile(name));
}

std::string DescribeCluster(const ClusterState& state) {
  std::map<std::string, std::string> health;
  for (const ProcessRecord& record : state.processes) {
    std::string& said = health[record.id.Name()];
    if (!Runs(record.stamp)) {
      said = "not running";
    } else if (!record.http.empty()) {
      const int status = runtime::HttpGet(record.http, "/readyz", kProbeTimeout).status;
      said = status == 200 ? "ready" : status == 0 ? "no answer" : "not ready";
    } else if (record.phase == Phase::kReady) {
      said = "runs";
    }
  }
  return FormatState(state, health, absl::Now());
}

int RemoveStrays(const std::string& name) {
  const absl::StatusOr<ClusterState> state = ReadClusterState(name);
  int removed = 0;
  if (state.ok()) {
    for (const ProcessRecord& record : state->processes) {
      if (!Runs(record.stamp)) continue;
      ::kill(static_cast<pid_t>(record.stamp.pid), SIGKILL);
      ++removed;
    }
  }
  ::unlink(StateFile(name).c_str());
  return removed;
}

}  // namespace freshet
