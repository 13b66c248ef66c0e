#ifndef FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds submit and watch. `connection` receives their connection flags; it must outlive the parsing.
void AddSubmitCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
