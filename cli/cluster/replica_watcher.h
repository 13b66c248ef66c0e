#ifndef FRESHET_CLI_CLUSTER_REPLICA_WATCHER_H_
#define FRESHET_CLI_CLUSTER_REPLICA_WATCHER_H_

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "cli/client/job_client.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The groups of `cluster.wanted` that `freshet scale` may change: rollouts of any pool, reward,
// env. Skips other names, invalid pools and negative numbers. Pure.
std::map<std::string, int> ScalableGroups(const job::v1::Cluster& cluster);

// Polls the controller once a second for the wanted number of processes. First sets the initial
// numbers there, to override those of an earlier cluster. Thread-safe.
class ReplicaWatcher {
 public:
  // Starts at once; `initial` is the number of processes by group.
  static absl::StatusOr<std::unique_ptr<ReplicaWatcher>> Start(
      const std::string& controller, const std::map<std::string, int>& initial,
      const std::string& cluster_token_file);
  ~ReplicaWatcher();

  // The controller's last reply; empty before the first one.
  std::map<std::string, int> wanted() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit ReplicaWatcher(std::unique_ptr<JobClient> client) : client_(std::move(client)) {}
  void Run(const std::map<std::string, int>& initial);
  bool Tell(const std::map<std::string, int>& initial);

  const std::unique_ptr<JobClient> client_;
  Notification stop_;
  mutable Mutex mu_;
  std::map<std::string, int> wanted_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_REPLICA_WATCHER_H_
