#ifndef FRESHET_ROLLOUT_OPENAI_TOOL_FORMAT_H_
#define FRESHET_ROLLOUT_OPENAI_TOOL_FORMAT_H_

#include "rollout/openai/tool_calls.h"
#include "text/tokenizer.h"

namespace freshet::openai {

// DetectToolCallFormat for a tokenizer with its chat template.
ToolCallChoice ToolFormatOf(const Tokenizer& tokenizer);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_TOOL_FORMAT_H_
