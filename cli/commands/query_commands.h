#ifndef FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Adds get, list, describe, samples, metrics: queries about jobs. Arguments as for
// AddSubmitCommands.
void AddQueryCommands(const Command& app, ConnectionFlags& connection);

void AddOutputFlag(const Command& command, std::string& format);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_QUERY_COMMANDS_H_
