#ifndef FRESHET_LOCAL_MODEL_COMMANDS_H_
#define FRESHET_LOCAL_MODEL_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "local/compute_options.h"

namespace freshet {

struct ScoreCommand {
  std::string model;     // Hugging Face directory
  std::string ids_file;  // one JSON array of ids per line
  ComputeOptions compute;
  std::string engine = "prefill";  // prefill | decode | trainer
};
// Writes {"logprobs": [...]} per input line to stdout. Errors name file and line.
absl::Status RunScore(const ScoreCommand& command);

struct GenerateCommand {
  std::string model;
  std::string ids_file;
  ComputeOptions compute;
  bool ignore_eos = false;
  int64_t max_new_tokens = 1;
  double temperature = 0;  // 0: greedy
  int64_t seed = 1;
};
// Writes {"ids": [...], "logprobs": [...]} per input line, new tokens only.
absl::Status RunGenerate(const GenerateCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_MODEL_COMMANDS_H_
