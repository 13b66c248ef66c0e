#include "cli/cluster/cluster_layout.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxAddressBytes = 300;

constexpr std::string_view kServing = "serving on ";

// The value of " KEY=" in a line, up to the next space.
std::string ValueOf(std::string_view line, std::string_view key) {
  const std::string pattern = StrCat(" ", key, "=");
  const size_t at = line.find(pattern);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = line.substr(at + pattern.size());
  const std::string_view value = rest.substr(0, rest.find(' '));
  return value == "-" || value.size() > kMaxAddressBytes ? "" : std::string(value);
}

// Null if there is none of this name.
const ModelServer* FindModelServer(const ClusterLayout& layout, const std::string& name) {
  for (const ModelServer& server : layout.model_servers) {
    if (server.name == name) return &server;
  }
  return nullptr;
}

absl::StatusOr<std::vector<std::string>> ModelCommand(const ClusterLayout& layout,
                                                      const ProcessId& id) {
  const ModelServer* const server = FindModelServer(layout, id.pool);
  if (server == nullptr) return NotFound("the cluster has no --model-server ", id.pool);
  return std::vector<std::string>{ProgramOf(layout, id.role),
                                  "serve",
                                  server->folder,
                                  "--name",
                                  server->name,
                                  "--listen",
                                  StrCat("127.0.0.1:", server->port),
                                  "--http-listen",
                                  "127.0.0.1:0"};
}

}  // namespace

std::string ClusterLayout::Controllers() const {
  return absl::StrJoin(controller_ports, ",", [](std::string* out, int port) {
    absl::StrAppend(out, "127.0.0.1:", port);
  });
}

std::string ModelServer::Address() const { return StrCat("http://127.0.0.1:", port); }

absl::StatusOr<std::vector<ModelServer>> ParseModelServers(const std::vector<std::string>& flags) {
  std::vector<ModelServer> servers;
  servers.reserve(flags.size());
  std::set<std::string> names;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    if (equals == std::string::npos || equals + 1 == flag.size()) {
      return InvalidArgument("--model-server ", flag, ": want NAME=DIR");
    }
    ModelServer server;
    server.name = flag.substr(0, equals);
    if (!IsClusterName(server.name)) {
      return InvalidArgument("--model-server ", flag, ": the name is not valid; use ",
                             kClusterNameRule);
    }
    if (!names.insert(server.name).second) {
      return InvalidArgument("--model-server ", flag, ": ", server.name, " is given twice");
    }
    server.folder = flag.substr(equals + 1);
    servers.push_back(std::move(server));
  }
  return servers;
}

std::string ProgramOf(const ClusterLayout& layout, std::string_view role) {
  if (role == "redis") return layout.redis_program;
  return StrCat(layout.binary_folder, "/freshet-", role == "model" ? "local" : role);
}

int PortOf(const ClusterLayout& layout, const ProcessId& id) {
  if (id.role == "redis") return layout.redis_port;
  if (id.role == "model") {
    const ModelServer* const server = FindModelServer(layout, id.pool);
    return server == nullptr ? 0 : server->port;
  }
  const auto at = static_cast<size_t>(id.index - 1);
  const bool given = id.role == "controller" && at < layout.controller_ports.size();
  return given ? layout.controller_ports[at] : 0;
}

absl::StatusOr<std::vector<std::string>> CommandOf(const ClusterLayout& layout,
                                                   const ProcessId& id) {
  const std::string program = ProgramOf(layout, id.role);
  if (id.role == "redis") return std::vector<std::string>{program, layout.RedisConfig()};
  if (id.role == "model") return ModelCommand(layout, id);
  std::vector<std::string> argv = {program, "--name", id.Name(), "--http-listen", "127.0.0.1:0"};
  const auto add = [&](std::string flag, std::string value) {
    argv.push_back(std::move(flag));
    argv.push_back(std::move(value));
  };
  add("--cluster-token-file", layout.TokenFile());
  // Environment workers do not use Redis.
  if (id.role != "env") {
    add("--redis", StrCat("127.0.0.1:", layout.redis_port));
    add("--redis-user", id.role);
    add("--redis-password-file", layout.PasswordFile(id.role));
  }
  if (id.role == "controller" || id.role == "trainer") {
    for (const std::string& folder : layout.data_roots) add("--data-root", folder);
  }
  if (id.role == "controller") {
    add("--listen", StrCat("127.0.0.1:", PortOf(layout, id)));
    add("--status-listen", "127.0.0.1:0");
    return argv;
  }
  add("--listen", "127.0.0.1:0");
  add("--controller", layout.Controllers());
  if (!id.pool.empty()) add("--pool", id.pool);
  if (id.role == "trainer") add("--state-dir", layout.TrainerFolder());
  if (id.role == "reward") {
    for (const auto& [flag, value] : runtime::RewardArguments(layout.offered)) add(flag, value);
  }
  const auto at = static_cast<size_t>(id.index - 1);
  if (id.role == "rollout" && id.pool.empty() && at < layout.engine_servers.size()) {
    add("--engine", layout.engine);
    add("--engine-address", layout.engine_servers[at].address);
    add("--engine-dir", layout.engine_servers[at].folder);
    add("--engine-weights", layout.engine_weights);
  }
  return argv;
}

std::string RedisConfigText(const ClusterLayout& layout, const std::string& acl) {
  return StrCat(acl, "bind 127.0.0.1\nport ", layout.redis_port, "\nprotected-mode yes\ndir \"",
                layout.RedisFolder(),
                "\"\nappendonly yes\nappendfsync always\nsave \"\"\n"
                "maxmemory-policy noeviction\ndaemonize no\nlogfile \"\"\n");
}

std::optional<ReadyLine> ParseReadyLine(const ProcessId& id, std::string_view line) {
  if (id.role == "redis") {
    if (line.find("Ready to accept connections") == std::string_view::npos) return std::nullopt;
    return ReadyLine{};
  }
  if (id.role == "model") {
    if (!line.starts_with(kServing)) return std::nullopt;
    const std::string_view url = line.substr(kServing.size(), kMaxAddressBytes);
    return ReadyLine{"", ValueOf(line, "http"), "", std::string(url.substr(0, url.find(' ')))};
  }
  const std::string head = StrCat("ready ", id.role);
  if (line.substr(0, head.size()) != head) return std::nullopt;
  if (line.size() > head.size() && line[head.size()] != ' ') return std::nullopt;
  return ReadyLine{ValueOf(line, "grpc"), ValueOf(line, "http"), ValueOf(line, "status"), ""};
}

bool IsClusterName(std::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '.' || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace freshet
