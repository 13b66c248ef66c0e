#ifndef FRESHET_SERVICES_CLI_CONTROL_COMMANDS_H_
#define FRESHET_SERVICES_CLI_CONTROL_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "services/cli/client/session.h"

namespace freshet {

// pause, resume, cancel, delete, scale. Arguments as in AddSubmitCommands.
void AddControlCommands(CLI::App& app, ConnectionFlags& connection, int& code);

}  // namespace freshet

#endif  // FRESHET_SERVICES_CLI_CONTROL_COMMANDS_H_
