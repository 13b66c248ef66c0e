#ifndef FRESHET_SERVICES_CLI_CLUSTER_WANTED_FOLLOWER_H_
#define FRESHET_SERVICES_CLI_CLUSTER_WANTED_FOLLOWER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_service.pb.h"
#include "services/base/mutex.h"
#include "services/cli/client/job_client.h"

namespace freshet {

// The groups of `cluster.wanted` that `freshet scale` may change: rollouts of any pool, reward,
// env. Other names, pools that are no names and negative numbers are left out. Pure.
std::map<std::string, int> ScalableGroups(const job::v1::Cluster& cluster);

// Asks the controller once a second how many processes are wanted. First it tells the controller
// how many there are, so that what a former cluster was scaled to does not come back. Thread-safe.
class WantedFollower {
 public:
  // Starts at once; `initial` are processes by group.
  static absl::StatusOr<std::unique_ptr<WantedFollower>> Start(
      const std::string& controller, const std::map<std::string, int>& initial,
      const std::string& cluster_token_file);
  ~WantedFollower();

  // What the controller said last; empty while it has not answered.
  std::map<std::string, int> wanted() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit WantedFollower(std::unique_ptr<JobClient> client) : client_(std::move(client)) {}
  void Run(const std::map<std::string, int>& initial);
  bool Tell(const std::map<std::string, int>& initial);

  const std::unique_ptr<JobClient> client_;
  Notification stop_;
  mutable Mutex mu_;
  std::map<std::string, int> wanted_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_CLI_CLUSTER_WANTED_FOLLOWER_H_
