#ifndef FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds pause, resume, cancel, delete, scale. Arguments as for AddSubmitCommands.
void AddControlCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_CONTROL_COMMANDS_H_
