#ifndef FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_
#define FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

namespace freshet {

// Whether a process holds the lock `lock_file`. A cluster runs while its supervisor holds the lock
// of the cluster's folder.
bool IsLocked(const std::string& lock_file);

// The token file of the running cluster below `state_folder`/clusters that has a controller at one
// of `addresses`; "" if there is none. Addresses are compared as text, because another spelling of
// a loopback address may reach another user's process. Clusters with unreadable state are skipped.
std::string LocalClusterTokenFile(const std::string& state_folder,
                                  const std::vector<std::string>& addresses);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_
