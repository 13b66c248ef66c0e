#ifndef FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/client/session.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// Roles that every job needs.
inline const std::vector<std::string> kRolesOfAJob = {"rollout", "reward", "trainer"};

// What a cluster lacks, one line each: a leading controller, and a ready worker of each of `roles`.
// Does not check the datastore: without it the controller would not have answered. Pure.
std::vector<std::string> MissingFromCluster(const job::v1::Cluster& cluster,
                                            const std::vector<std::string>& roles);
// "controller HOST:PORT leads; ready: 1 env, 1 reward, 2 rollout, 1 trainer". Pure.
std::string DescribeHealth(const job::v1::Cluster& cluster);

// Polls the controller until nothing is missing, for at most `wait` (zero: once). Exit code 0, 1
// with a line for each missing thing, or 130 after Ctrl-C.
int CheckClusterHealth(const Session& session, const std::vector<std::string>& roles,
                       absl::Duration wait);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_HEALTH_H_
