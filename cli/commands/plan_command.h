#ifndef FRESHET_CLI_COMMANDS_PLAN_COMMAND_H_
#define FRESHET_CLI_COMMANDS_PLAN_COMMAND_H_

#include "base/command_line.h"

namespace freshet {

// plan: the memory that a job needs.
void AddPlanCommand(const Command& app);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_PLAN_COMMAND_H_
