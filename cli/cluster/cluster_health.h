#ifndef FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/client/session.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// What every job needs one of.
inline const std::vector<std::string> kRolesOfAJob = {"rollout", "reward", "trainer"};

// What a cluster lacks, one line each: a controller that leads, and a ready worker of each of
// `roles`. That it was told at all says that the datastore answers. Pure.
std::vector<std::string> MissingFromCluster(const job::v1::Cluster& cluster,
                                            const std::vector<std::string>& roles);
// "controller HOST:PORT leads; ready: 1 env, 1 reward, 2 rollout, 1 trainer". Pure.
std::string DescribeHealth(const job::v1::Cluster& cluster);

// Asks the controller until nothing is missing, for at most `wait`, once when that is zero. Exit
// code 0, else 1 with a line for each thing that is missing, or 130 after Ctrl-C.
int CheckClusterHealth(const Session& session, const std::vector<std::string>& roles,
                       absl::Duration wait);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_
