#ifndef FRESHET_LOCAL_PROMPT_COMMANDS_H_
#define FRESHET_LOCAL_PROMPT_COMMANDS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"

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
  std::string dtype = "fp32";
  int64_t kv_cache_bytes = 0;  // of the engine; 0: what the memory allows
  PromptSampling sampling;
};
// Writes the continuation of a text to stdout while it is generated.
absl::Status RunPrompt(const PromptCommand& command);

struct ChatCommand {
  std::string model;
  std::string system;  // first message; "": none
  std::string dtype = "fp32";
  int64_t kv_cache_bytes = 0;
  PromptSampling sampling;
};
// Reads one user message per line from stdin, up to its end, and writes the answers to stdout.
absl::Status RunChat(const ChatCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_PROMPT_COMMANDS_H_
