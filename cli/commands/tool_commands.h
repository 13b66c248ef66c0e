#ifndef FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// Adds doctor, export tensorboard, completion. Call it last, because completion covers what `app`
// has. Arguments as for AddSubmitCommands.
void AddToolCommands(CLI::App& app, ConnectionFlags& connection, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_
