#include "cli/cluster/replica_watcher.h"

#include <utility>

#include "base/status_macros.h"
#include "base/transient.h"
#include "cli/cluster/cluster_layout.h"

namespace freshet {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(2);

bool IsScalable(const std::string& role) {
  return role == "rollout" || role == "reward" || role == "env";
}

}  // namespace

std::map<std::string, int> ScalableGroups(const job::v1::Cluster& cluster) {
  std::map<std::string, int> groups;
  for (const auto& [name, count] : cluster.wanted()) {
    const size_t slash = name.find('/');
    const std::string role = name.substr(0, slash);
    const std::string pool = slash == std::string::npos ? "" : name.substr(slash + 1);
    if (!IsScalable(role) || count < 0) continue;
    if (slash != std::string::npos && (role != "rollout" || !IsClusterName(pool))) continue;
    groups[pool.empty() || pool == "default" ? role : name] = count;
  }
  return groups;
}

absl::StatusOr<std::unique_ptr<ReplicaWatcher>> ReplicaWatcher::Start(
    const std::string& controller, const std::map<std::string, int>& initial,
    const std::string& cluster_token_file) {
  ServerTarget target;
  target.cluster_token_file = cluster_token_file;
  target.address = controller;
  target.source = "the cluster";
  JobClient::Options options;
  options.call_timeout = kTimeout;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<JobClient> client, JobClient::Create(target, options));
  std::unique_ptr<ReplicaWatcher> follower(new ReplicaWatcher(std::move(client)));
  follower->thread_ = std::jthread([self = follower.get(), initial] { self->Run(initial); });
  return follower;
}

ReplicaWatcher::~ReplicaWatcher() {
  stop_.Notify();
  client_->CancelStreams();
}

std::map<std::string, int> ReplicaWatcher::wanted() const {
  const MutexLock lock(mu_);
  return wanted_;
}

bool ReplicaWatcher::Tell(const std::map<std::string, int>& initial) {
  for (const auto& [group, count] : initial) {
    const size_t slash = group.find('/');
    job::v1::ScaleRequest request;
    request.set_role(group.substr(0, slash));
    if (!IsScalable(request.role())) continue;
    if (slash != std::string::npos) request.set_pool(group.substr(slash + 1));
    request.set_replicas(count);
    request.set_keep_workers(true);  // all workers of this cluster are its own
    const absl::Status status = client_->Scale(request).status();
    // Another answer than silence is final.
    if (IsTransient(status)) return false;
  }
  return true;
}

void ReplicaWatcher::Run(const std::map<std::string, int>& initial) {
  bool told = false;
  while (!stop_.HasBeenNotified()) {
    told = told || Tell(initial);
    const absl::StatusOr<job::v1::Cluster> cluster = client_->GetCluster(kTimeout);
    if (told && cluster.ok()) {
      const MutexLock lock(mu_);
      wanted_ = ScalableGroups(*cluster);
    }
    if (stop_.WaitFor(kInterval)) return;
  }
}

}  // namespace freshet
