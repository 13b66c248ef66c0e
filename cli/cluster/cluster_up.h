#ifndef FRESHET_CLI_CLUSTER_CLUSTER_UP_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_UP_H_

#include <string>
#include <vector>

#include "services/runtime/reward_flags.h"

namespace freshet {

struct ClusterUpFlags {
  std::string name = "default";
  int port = 7070;  // of the controller; 0: any free one
  int rollouts = 1;
  int rewards = 1;
  int envs = 1;
  int trainers = 1;
  bool standby = false;  // start a second controller
  bool foreground = false;
  double timeout_seconds = 90;
  std::string binary_folder;  // of freshet-ROLE; "": this program's
  // Folders below which jobs may name files, besides the caller's home.
  std::vector<std::string> data_roots;
  // What the rollouts generate with. Unless native: the server and the shared folder of each.
  std::string rollout_engine = "native";
  std::vector<std::string> engine_addresses;
  std::vector<std::string> engine_folders;
  std::string engine_weights = "folder";  // --engine-weights of the rollouts
  // Model servers, NAME=DIR, and the names of those that reward workers ask; "": as `offered` says.
  std::vector<std::string> model_servers;
  std::string judge_server;
  std::string reward_model_server;
  runtime::RewardFlags offered;  // by the reward workers
};

// Starts a cluster's supervisor in the background and waits until everything is ready, or reports
// what already runs. Returns the exit code. The process must not have other threads.
int ClusterUp(const ClusterUpFlags& flags);

std::string ClusterFolder(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_UP_H_
