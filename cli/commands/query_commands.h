#ifndef FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "cli/client/session.h"

namespace freshet {

// get, list, describe, samples, metrics: what a cluster knows about jobs. Arguments as in
// AddSubmitCommands.
void AddQueryCommands(CLI::App& app, ConnectionFlags& connection, int& code);

// -o FORMAT of a command.
void AddOutputFlag(CLI::App& command, std::string& format);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_
