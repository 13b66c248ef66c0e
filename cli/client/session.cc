#include "cli/client/session.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/client/call_fault.h"
#include "cli/client/local_cluster.h"
#include "cli/client/user_folders.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxConfigBytes = 256 << 10;

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = absl::AsciiStrToLower(value);
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

void AddConnectionFlags(const Command& command, ConnectionFlags& flags) {
  const char* group = "Server";
  command
      .Add("--server", flags.server,
           "HOST:PORT (several, separated by commas, if there are standbys), or the name of "
           "a context; default: FRESHET_SERVER, the current context, 127.0.0.1:7070")
      .Group(group);
  command.Add("--context", flags.context, "context in ~/.config/freshet/config.yaml").Group(group);
  command.Add("--ca", flags.ca, "PEM file: CA certificates that verify the server").Group(group);
  command.Add("--cert", flags.cert, "PEM file: client certificate, for mutual TLS").Group(group);
  command.Add("--key", flags.key, "PEM file: its key").Group(group);
  command
      .Add("--token-file", flags.token_file,
           "file with a bearer token; without --ca it is sent over loopback only")
      .Group(group);
}

absl::StatusOr<ServerTarget> TargetOf(const ConnectionFlags& flags) {
  TargetSources sources{flags, std::nullopt, "", std::nullopt};
  if (const char* value = std::getenv("FRESHET_SERVER")) sources.environment = value;
  sources.config_path = ConfigFolder() + "/config.yaml";
  absl::StatusOr<std::string> config = ReadFile(sources.config_path, kMaxConfigBytes);
  if (config.ok()) sources.config = *std::move(config);
  if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
  FRESHET_ASSIGN_OR_RETURN(ServerTarget target, ResolveTarget(sources));
  const std::vector<std::string> addresses = SplitAddresses(target.address);
  if (!target.ca.empty()) return target;
  if (target.token_file.empty()) {
    target.cluster_token_file = LocalClusterTokenFile(StateFolder(), addresses);
  } else if (std::all_of(addresses.begin(), addresses.end(), runtime::IsLoopback)) {
    target.cluster_token_file = std::exchange(target.token_file, "");
  }
  return target;
}

Terminal DescribeTerminal() {
  Terminal terminal;
  terminal.out = ::isatty(STDOUT_FILENO) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  terminal.color = terminal.out && (no_color == nullptr || *no_color == '\0') &&
                   (kind == nullptr || std::string_view(kind) != "dumb");
  terminal.utf8 = LocaleIsUtf8();
  winsize size{};
  if (terminal.out && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
  }
  return terminal;
}

absl::StatusOr<Session> Session::Open(const ConnectionFlags& flags) {
  FRESHET_ASSIGN_OR_RETURN(const ServerTarget target, TargetOf(flags));
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<JobClient> client, JobClient::Create(target));
  return Session(std::move(client));
}

int Session::Fail(const absl::Status& status) const {
  for (const std::string& line : CallErrorLines(status, target())) PrintLine(line);
  return CallExitCode(status);
}

int WithSession(const ConnectionFlags& flags, const std::function<int(const Session&)>& body) {
  const absl::StatusOr<Session> session = Session::Open(flags);
  if (session.ok()) return body(*session);
  PrintError(session.status());
  return absl::IsNotFound(session.status()) ? kExitContent : kExitCommandLine;
}

void OnSession(const Command& command, ConnectionFlags& flags,
               std::function<int(const Session&)> body) {
  AddConnectionFlags(command, flags);
  command.OnRun([&flags, body = std::move(body)] { return WithSession(flags, body); });
}

void PrintLine(const std::string& line) { std::fprintf(stderr, "freshet: %s\n", line.c_str()); }

}  // namespace freshet
