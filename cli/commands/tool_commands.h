#ifndef FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// doctor, data, export, completion. To be added last: completion writes down what `app` has.
// Arguments as in AddSubmitCommands.
void AddToolCommands(const Command& app, ConnectionFlags& connection);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_TOOL_COMMANDS_H_
