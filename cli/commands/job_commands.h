#ifndef FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_

#include "CLI/CLI.hpp"

namespace freshet {

// Adds validate, explain, init: commands about job files. `code` receives the exit code once one of
// them has run. Both arguments must outlive the parse.
void AddJobCommands(CLI::App& app, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
