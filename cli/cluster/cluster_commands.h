#ifndef FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds cluster up, down and status for a cluster on this machine, and cluster health for any.
// `flags` are the program's global flags; `code` as for AddJobCommands.
void AddClusterCommands(const Command& app, ConnectionFlags& flags);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
