#ifndef FRESHET_LOCAL_SERVE_COMMAND_H_
#define FRESHET_LOCAL_SERVE_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace freshet {

struct ServeCommand {
  std::string model;  // Hugging Face directory
  std::string listen = "127.0.0.1:8000";
  std::string name;  // of the model; "": the directory's
  std::string dtype = "fp32";
  std::string tool_calls = "auto";  // auto | hermes | llama3_json | none
  std::string api_key_file;
  bool insecure = false;       // allow addresses that other machines reach
  int threads = 0;             // of the engine; 0: one per CPU
  int64_t kv_cache_bytes = 0;  // of the engine; 0: what the memory allows
  int64_t max_sequences = 256;
  int64_t max_waiting = 1024;  // prompts
  int64_t request_timeout_s = 600;
  int64_t drain_timeout_s = 30;
};

// INVALID_ARGUMENT, naming the flag: --listen is not an address, or one that other machines reach
// without --insecure.
absl::Status CheckListen(const ServeCommand& command);

// Serves OpenAI's API until SIGINT or SIGTERM, then finishes the running requests. Returns the exit
// code.
int RunServe(const ServeCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_SERVE_COMMAND_H_
