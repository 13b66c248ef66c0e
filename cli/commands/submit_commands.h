#ifndef FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// submit and watch. `flags` are those of the whole program; `code` as in AddJobCommands.
void AddSubmitCommands(CLI::App& app, ConnectionFlags& flags, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_SUBMIT_COMMANDS_H_
