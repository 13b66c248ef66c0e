#ifndef FRESHET_CLI_COMMANDS_CLUSTER_VIEW_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_CLUSTER_VIEW_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds top and logs. Arguments as for AddSubmitCommands.
void AddClusterViewCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_CLUSTER_VIEW_COMMANDS_H_
