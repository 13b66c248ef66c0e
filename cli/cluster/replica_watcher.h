#ifndef FRESHET_CLI_CLUSTER_REPLICA_WATCHER_H_
#define FRESHET_CLI_CLUSTER_REPLICA_WATCHER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "cli/client/job_client.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The groups of `cluster.wanted` that `freshet scale` may change: rollouts of any pool, reward,
// env. Other names, pools that are no names and negative numbers are left out. Pure.
std::map<std::string, int> ScalableGroups(const job::v1::Cluster& cluster);

// Asks the controller once a second how many processes are wanted. First it tells the controller
// how many there are, so that what a former cluster was scaled to does not come back. Thread-safe.
class ReplicaWatcher {
 public:
  // Starts at once; `initial` are processes by group.
  static absl::StatusOr<std::unique_ptr<ReplicaWatcher>> Start(
      const std::string& controller, const std::map<std::string, int>& initial,
      const std::string& cluster_token_file);
  ~ReplicaWatcher();

  // What the controller said last; empty while it has not answered.
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
