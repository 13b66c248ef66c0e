#include "cli/client/server_target.h"

#include <algorithm>
#include <exception>
#include <map>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "yaml-cpp/yaml.h"

namespace freshet {
namespace {

constexpr size_t kMaxConfigBytes = 256 << 10;
constexpr size_t kMaxContexts = 1000;

struct Config {
  std::string current;
  std::map<std::string, ServerTarget> contexts;
};

absl::StatusOr<std::string> TextOf(const YAML::Node& node, const std::string& path,
                                   const std::string& key) {
  if (!node.IsScalar()) return InvalidArgument(path, ": ", key, ": is not a string");
  return node.Scalar();
}

absl::StatusOr<ServerTarget> ParseContext(const YAML::Node& node, const std::string& path,
                                          const std::string& where) {
  if (!node.IsMap()) {
    return InvalidArgument(path, ": ", where, ": is not a map; write {address: \"HOST:PORT\"}");
  }
  ServerTarget target;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const std::string full = StrCat(where, ".", key);
    std::string* field = key == "address"      ? &target.address
                         : key == "ca"         ? &target.ca
                         : key == "cert"       ? &target.cert
                         : key == "key"        ? &target.key
                         : key == "token_file" ? &target.token_file
                                               : nullptr;
    if (field == nullptr) {
      return InvalidArgument(path, ": ", full,
                             ": unknown key; use address, ca, cert, key or token_file");
    }
    FRESHET_ASSIGN_OR_RETURN(*field, TextOf(entry.second, path, full));
  }
  if (target.address.empty()) {
    return InvalidArgument(path, ": ", where, ".address: is missing; write \"HOST:PORT\"");
  }
  return target;
}

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& path) {
  if (text.size() > kMaxConfigBytes) {
    return InvalidArgument(path, ": ", text.size(), " bytes, more than the limit of ",
                           kMaxConfigBytes);
  }
  Config config;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return config;
    if (!root.IsMap()) return InvalidArgument(path, ": not a YAML map with the key contexts");
    for (const auto& entry : root) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (key == "current") {
        FRESHET_ASSIGN_OR_RETURN(config.current, TextOf(entry.second, path, key));
        continue;
      }
      if (key != "contexts") {
        return InvalidArgument(path, ": ", key, ": unknown key; use current and contexts");
      }
      if (!entry.second.IsMap() || entry.second.size() > kMaxContexts) {
        return InvalidArgument(path, ": contexts: is not a map of at most ", kMaxContexts,
                               " entries");
      }
      for (const auto& context : entry.second) {
        const std::string name = context.first.IsScalar() ? context.first.Scalar() : "";
        FRESHET_ASSIGN_OR_RETURN(config.contexts[name],
                                 ParseContext(context.second, path, StrCat("contexts.", name)));
      }
    }
  } catch (const std::exception& error) {
    return InvalidArgument(path, ": not YAML: ", error.what());
  }
  return config;
}

std::string Known(const Config& config) {
  if (config.contexts.empty()) return "there is none";
  return "there are " +
         absl::StrJoin(config.contexts, ", ",
                       [](std::string* out, const auto& entry) { out->append(entry.first); });
}

bool IsAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  return text.starts_with("unix:") ||
         (colon != std::string_view::npos && colon > 0 && colon + 1 < text.size());
}

absl::StatusOr<ServerTarget> ContextNamed(const Config& config, const std::string& path,
                                          const std::string& name, const std::string& source) {
  const auto found = config.contexts.find(name);
  if (found == config.contexts.end()) {
    return InvalidArgument(source, ": \"", name, "\" is neither HOST:PORT nor a context in ", path,
                           "; ", Known(config));
  }
  ServerTarget target = found->second;
  target.source = StrCat("context ", name, " in ", path);
  return target;
}

// Whether `list` and `others` have a common address.
bool SharesAddress(const std::string& list, const std::vector<std::string>& others) {
  const std::vector<std::string> addresses = SplitAddresses(list);
  return std::find_first_of(addresses.begin(), addresses.end(), others.begin(), others.end()) !=
         addresses.end();
}

// Resolves `text`: a context, or HOST:PORT[,...], which uses the files of a context that contains
// one of these addresses.
absl::StatusOr<ServerTarget> Named(const Config& config, const std::string& path,
                                   const std::string& text, const std::string& source) {
  const std::vector<std::string> addresses = SplitAddresses(text);
  if (addresses.size() == 1 && !IsAddress(text)) return ContextNamed(config, path, text, source);
  for (const std::string& address : addresses) {
    if (IsAddress(address)) continue;
    return InvalidArgument(source, ": \"", address, "\" is not HOST:PORT; write them as in ",
                           "\"one:7070,other:7070\"");
  }
  ServerTarget target;
  for (const auto& [name, context] : config.contexts) {
    if (SharesAddress(context.address, addresses)) target = context;
  }
  target.address = text;
  target.source = source;
  return target;
}

absl::StatusOr<ServerTarget> Choose(const TargetSources& sources, const Config& config) {
  const std::string& path = sources.config_path;
  if (!sources.server.empty()) return Named(config, path, sources.server, "--server");
  if (!sources.context.empty()) return ContextNamed(config, path, sources.context, "--context");
  if (sources.environment && !sources.environment->empty()) {
    return Named(config, path, *sources.environment, "FRESHET_SERVER");
  }
  if (!config.current.empty())
    return ContextNamed(config, path, config.current, path + ": current");
  ServerTarget target;
  target.address = kDefaultServer;
  target.source = "the default";
  target.named = false;
  return target;
}

}  // namespace

std::vector<std::string> SplitAddresses(const std::string& list) {
  return absl::StrSplit(list, ',');
}

absl::StatusOr<ServerTarget> ResolveTarget(const TargetSources& sources) {
  Config config;
  if (sources.config) {
    FRESHET_ASSIGN_OR_RETURN(config, ParseConfig(*sources.config, sources.config_path));
  }
  FRESHET_ASSIGN_OR_RETURN(ServerTarget target, Choose(sources, config));
  if (!sources.ca.empty()) target.ca = sources.ca;
  if (!sources.cert.empty()) target.cert = sources.cert;
  if (!sources.key.empty()) target.key = sources.key;
  if (!sources.token_file.empty()) target.token_file = sources.token_file;
  if (target.cert.empty() != target.key.empty()) {
    return InvalidArgument(target.cert.empty() ? "--key" : "--cert",
                           ": is given alone; mutual TLS needs --cert and --key");
  }
  if (!target.cert.empty() && target.ca.empty()) {
    return InvalidArgument("--cert: needs --ca to verify the server");
  }
  return target;
}

}  // namespace freshet
