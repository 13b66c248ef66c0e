#ifndef FRESHET_CLI_CLUSTER_CLUSTER_LAYOUT_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_LAYOUT_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/cluster/cluster_plan.h"
#include "services/runtime/reward_flags.h"

namespace freshet {

// The inference server of one rollout.
struct EngineServer {
  std::string address;  // HOST:PORT
  std::string folder;   // shared with the rollout, absolute
};

// A model that `freshet serve` serves.
struct ModelServer {
  std::string name;    // also that of the model
  std::string folder;  // of the model
  int port = 0;        // on loopback

  std::string Address() const;  // http://HOST:PORT
};

// The servers of flags NAME=DIR, without ports. INVALID_ARGUMENT, naming --model-server: a bad or
// repeated name, or no folder. Pure.
absl::StatusOr<std::vector<ModelServer>> ParseModelServers(const std::vector<std::string>& flags);

// Folders, ports and programs of a cluster on this machine.
struct ClusterLayout {
  std::string name;
  std::string folder;         // of its state
  std::string binary_folder;  // of freshet-ROLE
  std::string redis_program;
  int redis_port = 0;
  std::vector<int> controller_ports;    // one per controller
  std::map<std::string, int> wanted;    // number of processes by group, at the start
  std::vector<std::string> data_roots;  // absolute folders below which jobs may name files
  // Rollouts of the default pool, in order, that generate on a server of this kind; others are
  // native.
  std::string engine;
  std::vector<EngineServer> engine_servers;
  std::string engine_weights = "folder";   // how they get into a running server
  std::vector<ModelServer> model_servers;  // each is one process
  runtime::RewardFlags offered;            // by the reward workers

  std::string LogFile(const std::string& process) const {
    return folder + "/logs/" + process + ".log";
  }
  // Password of a role's Redis user; of the default user, which may do everything, for "default".
  std::string PasswordFile(const std::string& user) const {
    return folder + (user == "default" ? "/redis.password" : "/redis." + user + ".password");
  }
  std::string TokenFile() const { return folder + "/cluster.token"; }
  std::string RedisConfig() const { return folder + "/redis.conf"; }
  std::string RedisFolder() const { return folder + "/redis"; }
  std::string TrainerFolder() const { return folder + "/trainer"; }
  std::string StateFile() const { return folder + "/cluster.json"; }
  std::string LockFile() const { return folder + "/lock"; }
  // Addresses of all controllers, separated by commas.
  std::string Controllers() const;
};

// The program of a role's processes. Pure.
std::string ProgramOf(const ClusterLayout& layout, std::string_view role);

// The command line of a process. NOT_FOUND: a model server that is not in the layout. Pure.
absl::StatusOr<std::vector<std::string>> CommandOf(const ClusterLayout& layout,
                                                   const ProcessId& id);

// The port on loopback that the layout gives to a process; 0 if it chooses one itself. Pure.
int PortOf(const ClusterLayout& layout, const ProcessId& id);

// redis.conf: loopback, append-only file synced before each answer, nothing evicted, and `acl`: the
// lines that define users.
std::string RedisConfigText(const ClusterLayout& layout, const std::string& acl);

// Parses the addresses in "ready ROLE grpc=HOST:PORT http=HOST:PORT [status=HOST:PORT]" of stdout,
// in a model server's "serving on http://HOST:PORT http=HOST:PORT", or redis-server's ready message
// (no addresses). nullopt for any other line.
struct ReadyLine {
  std::string grpc, http;
  std::string status;  // a controller's status page
  std::string api;     // a model server's URL
};
std::optional<ReadyLine> ParseReadyLine(const ProcessId& id, std::string_view line);

// Letters, digits, '.', '_' and '-', at most 63, starting with a letter, digit or '_'.
bool IsClusterName(std::string_view name);
// What IsClusterName wants, after "use" or "want".
inline constexpr char kClusterNameRule[] =
    "at most 63 letters, digits, '.', '_', '-', beginning with a letter, digit or '_'";

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_LAYOUT_H_
