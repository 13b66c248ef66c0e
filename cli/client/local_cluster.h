#ifndef FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_
#define FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

namespace freshet {

// The token file of the cluster below `state_folder`/clusters that runs and has a controller at one
// of `addresses`; "" when there is none. Addresses are compared as text: another way to write a
// loopback address may reach another user's process. Clusters whose state cannot be read are passed
// over.
std::string LocalClusterTokenFile(const std::string& state_folder,
                                  const std::vector<std::string>& addresses);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_LOCAL_CLUSTER_H_
