#ifndef FRESHET_CLI_COMMANDS_COMPLETION_H_
#define FRESHET_CLI_COMMANDS_COMPLETION_H_

#include <string>

#include "base/command_line.h"

namespace freshet {

// The completion script of `shell` ("bash", "zsh", "fish") for the commands, flags and job ids of
// `program`. Usage: source <(freshet completion bash).
std::string CompletionScript(const CommandHelp& program, const std::string& shell);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_COMPLETION_H_
