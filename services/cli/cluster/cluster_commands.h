#ifndef FRESHET_SERVICES_CLI_CLUSTER_CLUSTER_COMMANDS_H_
#define FRESHET_SERVICES_CLI_CLUSTER_CLUSTER_COMMANDS_H_

#include "CLI/CLI.hpp"

namespace freshet {

// cluster up, down and status: a cluster on this machine. `code` as in AddJobCommands.
void AddClusterCommands(CLI::App& app, int& code);

}  // namespace freshet

#endif  // FRESHET_SERVICES_CLI_CLUSTER_CLUSTER_COMMANDS_H_
