#ifndef FRESHET_CLI_CLIENT_SERVER_TARGET_H_
#define FRESHET_CLI_CLIENT_SERVER_TARGET_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// A controller to talk to, and how to prove who we are.
struct ServerTarget {
  std::string address;  // HOST:PORT, or several with commas between: controllers of one cluster
  std::string ca;       // PEM files; empty: plaintext
  std::string cert;
  std::string key;
  std::string token_file;          // first line is a bearer token
  std::string cluster_token_file;  // of a cluster on this machine, sent over loopback
  std::string source;  // where the address comes from, for messages: "--server", "FRESHET_SERVER"
  bool named = true;   // not the default
};

// Where a target may be named, the first that is there wins: the flag, the environment, the current
// context of the configuration file, and the default 127.0.0.1:7070.
struct TargetSources {
  std::string server;                      // --server: HOST:PORT[,...] or the name of a context
  std::string context;                     // --context
  std::optional<std::string> environment;  // FRESHET_SERVER, with the same meaning as --server
  std::string config_path;                 // for messages
  std::optional<std::string> config;       // text of the file, when there is one
  // Flags; each one that is set wins over the context's.
  std::string ca, cert, key, token_file;
};

inline constexpr char kDefaultServer[] = "127.0.0.1:7070";

// The addresses of a target.
std::vector<std::string> SplitAddresses(const std::string& list);

// The configuration file:
//   current: lab
//   contexts:
//     lab: {address: "host:7070,other:7070", ca: F, cert: F, key: F, token_file: F}
// `~/` at the beginning of a file name is not expanded; relative names belong to the current
// folder. Pure. INVALID_ARGUMENT naming the file and the key, or the flag, and the fix.
absl::StatusOr<ServerTarget> ResolveTarget(const TargetSources& sources);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_SERVER_TARGET_H_
