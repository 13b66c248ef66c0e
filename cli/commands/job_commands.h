#ifndef FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_

#include "CLI/CLI.hpp"

namespace freshet {

// validate, explain, init: commands about job files. `code` receives the exit code when one of them
// has run; both arguments must outlive the parse.
void AddJobCommands(CLI::App& app, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
