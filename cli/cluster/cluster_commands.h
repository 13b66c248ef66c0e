#ifndef FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// cluster up, down and status: a cluster on this machine; cluster health: any. `flags` are those of
// the whole program; `code` as in AddJobCommands.
void AddClusterCommands(CLI::App& app, ConnectionFlags& flags, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_COMMANDS_H_
