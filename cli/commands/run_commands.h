#ifndef FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// What has a slash, or is there, is a run folder; everything else the id of a job.
bool IsRunFolder(const std::string& argument);

// ledger verify, report, tokenize: commands about run folders and tokenizers. `ledger verify` takes
// a job of the cluster too. Arguments as in AddSubmitCommands.
void AddRunCommands(CLI::App& app, ConnectionFlags& connection, int& code);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_RUN_COMMANDS_H_
