#include "rollout/openai/endpoint_flags.h"

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/channel.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {
namespace {

constexpr char kListen[] = "--openai-listen";
constexpr char kOff[] = "off";

}  // namespace

void AddEndpointFlags(const Command& app, EndpointFlags& flags) {
  app.Add(
         kListen, flags.listen,
         "HOST:PORT of OpenAI's API on the engine; \"off\": none. Off loopback it needs --tls-cert "
         "and --openai-token-file")
      .ShowDefault();
  app.Add("--openai-token-file", flags.token_file,
          "file whose first line is the API key that callers must present; keys of agents' "
          "sessions are accepted, too");
  app.Add("--openai-advertise", flags.advertise,
          "base URL that agents are given, such as https://HOST:PORT/v1; default: that of "
          "--openai-listen");
}

absl::StatusOr<std::optional<EndpointPortOptions>> MakePortOptions(
    const EndpointFlags& flags, const runtime::EndpointOptions& process) {
  if (flags.listen.empty() || flags.listen == kOff) return std::nullopt;
  FRESHET_RETURN_IF_ERROR(runtime::HttpServer::CheckListen(flags.listen, kListen));
  EndpointPortOptions options;
  options.listen = flags.listen;
  options.advertise = flags.advertise;
  if (!flags.advertise.empty() && !absl::StartsWith(flags.advertise, "http://") &&
      !absl::StartsWith(flags.advertise, "https://")) {
    return InvalidArgument("--openai-advertise \"", flags.advertise,
                           "\" does not begin with http:// or https://");
  }
  if (!flags.token_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(options.token, runtime::ReadBearerToken(flags.token_file, nullptr));
    if (absl::StartsWith(options.token, "session-")) {
      return InvalidArgument("--openai-token-file ", flags.token_file,
                             ": a token must not begin with session-, as keys of sessions do");
    }
  }
  if (runtime::IsLoopback(flags.listen)) {
    options.local_hosts_only = options.token.empty();
    return options;
  }
  options.local_hosts_only = false;
  options.tls = process.tls;
  const auto host = runtime::ParseHostPort(process.advertise);
  options.advertised_host = host.has_value() ? host->host : process.advertise;
  if (process.insecure) return options;
  if (!options.tls.enabled()) {
    return InvalidArgument(kListen, " ", flags.listen,
                           " is not a loopback address: give --tls-cert and --tls-key, or "
                           "--insecure for plaintext");
  }
  if (options.token.empty()) {
    return InvalidArgument(kListen, " ", flags.listen,
                           " is not a loopback address: give --openai-token-file, or --insecure "
                           "to accept every caller");
  }
  return options;
}

}  // namespace freshet::openai
