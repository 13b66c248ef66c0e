#ifndef FRESHET_LOCAL_SERVE_COMMAND_H_
#define FRESHET_LOCAL_SERVE_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "local/compute_options.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {

struct ServeCommand {
  std::string model;  // Hugging Face directory
  std::string listen = "127.0.0.1:8000";
  std::string http_listen;  // of probes and metrics; "": none
  std::string name;         // of the model; "": the directory's
  ComputeOptions compute;
  std::string tool_calls = "auto";  // auto | hermes | llama3_json | none
  std::string api_key_file;
  runtime::TlsFiles tls;  // cert and key: https only
  bool insecure = false;  // allow addresses that other machines reach without TLS or a key
  int64_t max_sequences = 256;
  int64_t max_waiting = 1024;  // prompts
  int64_t request_timeout_s = 600;
  int64_t drain_timeout_s = 30;
};

// INVALID_ARGUMENT, naming the flag: --listen is not an address, or one that other machines reach
// without TLS and a key or --insecure; a certificate without its key.
absl::Status CheckListen(const ServeCommand& command);

// Serves OpenAI's API until SIGINT or SIGTERM, then finishes the running requests. Returns the exit
// code.
int RunServe(const ServeCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_SERVE_COMMAND_H_
