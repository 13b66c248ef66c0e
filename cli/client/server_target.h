#ifndef FRESHET_CLI_CLIENT_SERVER_TARGET_H_
#define FRESHET_CLI_CLIENT_SERVER_TARGET_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// A controller address and the caller's credentials.
struct ServerTarget {
  std::string address;  // HOST:PORT, or several controllers of one cluster, separated by commas
  std::string ca;       // PEM files; empty: plaintext
  std::string cert;
  std::string key;
  std::string token_file;          // its first line is a bearer token
  std::string cluster_token_file;  // of a cluster on this machine, sent over loopback only
  std::string source;  // origin of the address, for messages: "--server", "FRESHET_SERVER"
  bool named = true;   // false: the default address
};

// Values of the flags of these names.
struct ConnectionFlags {
  std::string server;   // HOST:PORT[,...] or the name of a context
  std::string context;  // in the configuration file
  // Each overrides the context's value.
  std::string ca, cert, key, token_file;
};

// Sources of a target, in order of precedence: the flag, the environment, the current context of
// the configuration file, and the default 127.0.0.1:7070.
struct TargetSources : ConnectionFlags {
  std::optional<std::string> environment;  // FRESHET_SERVER, same format as --server
  std::string config_path;                 // for messages
  std::optional<std::string> config;       // content of the file, if it exists
};

inline constexpr char kDefaultServer[] = "127.0.0.1:7070";

std::vector<std::string> SplitAddresses(const std::string& list);

// Resolves a target. Format of the configuration file:
//   current: lab
//   contexts:
//     lab: {address: "host:7070,other:7070", ca: F, cert: F, key: F, token_file: F}
// A leading `~/` in file names is not expanded; relative names are relative to the current folder.
// Pure. INVALID_ARGUMENT naming the file and the key, or the flag, and the fix.
absl::StatusOr<ServerTarget> ResolveTarget(const TargetSources& sources);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_SERVER_TARGET_H_
