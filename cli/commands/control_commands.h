#ifndef FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// Adds pause, resume, cancel, delete, scale. Arguments as for AddSubmitCommands.
void AddControlCommands(CLI::App& app, ConnectionFlags& connection, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_
