#ifndef FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds submit and watch. `flags` are the program's global flags; `code` as for AddJobCommands.
void AddSubmitCommands(const Command& app, ConnectionFlags& flags);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
