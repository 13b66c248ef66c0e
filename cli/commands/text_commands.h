#ifndef FRESHET_CLI_COMMANDS_TEXT_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_TEXT_COMMANDS_H_

#include "base/command_line.h"

namespace freshet {

// Adds `tokenize` and `chat`, which need only the tokenizer files of a model.
void AddTextCommands(const Command& app);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_TEXT_COMMANDS_H_
