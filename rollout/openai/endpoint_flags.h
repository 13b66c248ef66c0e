#ifndef FRESHET_ROLLOUT_OPENAI_ENDPOINT_FLAGS_H_
#define FRESHET_ROLLOUT_OPENAI_ENDPOINT_FLAGS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/command_line.h"
#include "rollout/openai/endpoint_port.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::openai {

struct EndpointFlags {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; "" or "off": no endpoint
  std::string token_file;
  std::string advertise;
};

// Adds --openai-listen, --openai-token-file and --openai-advertise. `flags` must outlive the
// parsing.
void AddEndpointFlags(const Command& app, EndpointFlags& flags);

// The options of the port that they ask for; nullopt: none. On loopback it speaks plaintext and
// needs no token. Anywhere else it has the certificate of `process` and a token, unless --insecure
// is given. Its advertised host is that of `process`, unless --openai-advertise is given.
// INVALID_ARGUMENT naming the flag; NOT_FOUND: no token file.
absl::StatusOr<std::optional<EndpointPortOptions>> MakePortOptions(
    const EndpointFlags& flags, const runtime::EndpointOptions& process);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_ENDPOINT_FLAGS_H_
