#ifndef FRESHET_SERVICES_CLI_RUN_COMMANDS_H_
#define FRESHET_SERVICES_CLI_RUN_COMMANDS_H_

#include "CLI/CLI.hpp"

namespace freshet {

// ledger verify, report, tokenize: commands about run folders and tokenizers. `code` as in
// AddJobCommands.
void AddRunCommands(CLI::App& app, int& code);

}  // namespace freshet

#endif  // FRESHET_SERVICES_CLI_RUN_COMMANDS_H_
