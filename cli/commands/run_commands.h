#ifndef FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_

#include <string>

#include "cli/client/session.h"

namespace freshet {

// An argument with a slash, or an existing path, is a run folder; anything else is a job id.
bool IsRunFolder(const std::string& argument);

// Adds ledger verify, report, tokenize: commands about run folders and tokenizers. `ledger verify`
// also accepts a cluster job. Arguments as for AddSubmitCommands.
void AddRunCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_
