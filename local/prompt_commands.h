#ifndef FRESHET_LOCAL_PROMPT_COMMANDS_H_
#define FRESHET_LOCAL_PROMPT_COMMANDS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "local/compute_options.h"

namespace freshet {

constexpr int64_t kRandomSeed = std::numeric_limits<int64_t>::min();

// How text is generated. Negative numbers: as generation_config.json says.
struct PromptSampling {
  double temperature = -1;  // 0: greedy
  double top_p = -1;
  int64_t top_k = -1;
  int64_t seed = kRandomSeed;
  int64_t max_new_tokens = -1;  // negative: what the context leaves
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

struct PromptCommand {
  std::string model;  // Hugging Face directory
  std::string prompt;
  ComputeOptions compute;
  PromptSampling sampling;
};
// Writes the continuation of a text to stdout while it is generated.
absl::Status RunPrompt(const PromptCommand& command);

struct ChatCommand {
  std::string model;
  std::string system;  // first message; "": none
  ComputeOptions compute;
  PromptSampling sampling;
};
// Reads one user message per line from stdin, up to its end, and writes the answers to stdout.
absl::Status RunChat(const ChatCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_PROMPT_COMMANDS_H_
