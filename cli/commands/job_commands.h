#ifndef FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_

#include "base/command_line.h"

namespace freshet {

// Adds validate, explain, init: commands about job files.
void AddJobCommands(const Command& app);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_JOB_COMMANDS_H_
