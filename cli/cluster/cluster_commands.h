#ifndef FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds cluster up, down and status for a cluster on this machine, and cluster health for any.
// `connection` receives the connection flags of cluster health; it must outlive the parsing.
void AddClusterCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
