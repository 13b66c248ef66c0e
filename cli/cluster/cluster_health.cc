#include "cli/cluster/cluster_health.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "cli/client/call_fault.h"

namespace freshet {
namespace {

constexpr absl::Duration kAskEvery = absl::Milliseconds(500);
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

// By role: number of ready workers and of all workers.
std::map<std::string, std::pair<int, int>> CountWorkers(const job::v1::Cluster& cluster) {
  std::map<std::string, std::pair<int, int>> counts;
  for (const job::v1::Worker& worker : cluster.workers()) {
    auto& [ready, all] = counts[worker.role()];
    ready += worker.state() == "ready" ? 1 : 0;
    ++all;
  }
  return counts;
}

}  // namespace

std::vector<std::string> MissingFromCluster(const job::v1::Cluster& cluster,
                                            const std::vector<std::string>& roles) {
  std::vector<std::string> missing;
  if (cluster.leader().empty()) missing.push_back("no controller leads");
  const auto counts = CountWorkers(cluster);
  for (const std::string& role : roles) {
    const auto found = counts.find(role);
    const auto [ready, all] = found == counts.end() ? std::pair(0, 0) : found->second;
    if (ready == 0) missing.push_back(StrCat("no ", role, " is ready, of ", all, " registered"));
  }
  return missing;
}

std::string DescribeHealth(const job::v1::Cluster& cluster) {
  std::string text = StrCat("controller ", cluster.leader(), " leads; ready: ");
  const char* separator = "";
  for (const auto& [role, count] : CountWorkers(cluster)) {
    text += StrCat(separator, count.first, " ", role);
    separator = ", ";
  }
  return text;
}

int CheckClusterHealth(const Session& session, const std::vector<std::string>& roles,
                       absl::Duration wait) {
  Notification stop;
  const Interrupt interrupt([&](int) {
    stop.Notify();
    session.client().CancelStreams();
  });
  const absl::Time deadline = absl::Now() + wait;
  while (true) {
    const absl::StatusOr<job::v1::Cluster> cluster = session.client().GetCluster(kAskTimeout);
    if (stop.HasBeenNotified()) return kExitInterrupted;
    const std::vector<std::string> missing =
        cluster.ok() ? MissingFromCluster(*cluster, roles)
                     : CallErrorLines(cluster.status(), session.target());
    if (cluster.ok() && missing.empty()) {
      std::printf("%s\n", DescribeHealth(*cluster).c_str());
      return kExitDone;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      for (const std::string& line : missing) PrintLine(line);
      return kExitInternal;
    }
    if (stop.WaitFor(std::min(kAskEvery, left))) return kExitInterrupted;
  }
}

}  // namespace freshet
