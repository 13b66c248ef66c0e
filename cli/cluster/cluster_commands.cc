#include "cli/cluster/cluster_commands.h"

#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "cli/client/session.h"
#include "cli/cluster/cluster_health.h"
#include "cli/cluster/cluster_layout.h"
#include "cli/cluster/cluster_report.h"
#include "cli/cluster/cluster_state.h"
#include "cli/cluster/cluster_up.h"
#include "cli/cluster/posix_process_host.h"
#include "services/runtime/reward_flags.h"

namespace freshet {
namespace {

// Workers, controllers and Redis drain one after the other: three times the roles' own limit.
constexpr absl::Duration kDownTimeout = absl::Seconds(120);
constexpr int kMaxWorkers = 64;  // of a kind
constexpr absl::Duration kPoll = absl::Milliseconds(50);

bool AwaitEnd(const std::string& name, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (ClusterRuns(name)) {
    if (absl::Now() >= deadline) return false;
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kPoll));
  }
  return true;
}

int Down(const std::string& name, bool delete_data) {
  const bool ran = ClusterRuns(name);
  if (ran) {
    const absl::StatusOr<ClusterState> state = ReadClusterState(name);
    if (!state.ok() || !Runs(state->supervisor)) {
      PrintLine(StrCat("cluster ", name, " is just starting; try again in a second"));
      return kExitInternal;
    }
    const auto pid = static_cast<pid_t>(state->supervisor.pid);
    ::kill(pid, SIGTERM);
    if (!AwaitEnd(name, kDownTimeout)) {
      PrintLine(StrCat("cluster ", name, " has not ended within ",
                       absl::FormatDuration(kDownTimeout), "; it is killed"));
      ::kill(pid, SIGKILL);
      AwaitEnd(name, absl::Seconds(10));
    }
  }
  const int strays = RemoveStrays(name);
  if (strays > 0) std::fprintf(stderr, "killed %d processes of a supervisor that died\n", strays);
  std::printf("cluster %s %s\n", name.c_str(), ran ? "is down" : "was not running");
  if (delete_data) {
    std::error_code error;
    std::filesystem::remove_all(ClusterFolder(name), error);
    std::printf("%s removed\n", ClusterFolder(name).c_str());
  } else if (ran) {
    std::fprintf(stderr,
                 "jobs and checkpoints stay in %s; freshet cluster up continues with them\n",
                 ClusterFolder(name).c_str());
  }
  return kExitDone;
}

int Status(const std::string& name, bool json) {
  const absl::StatusOr<ClusterState> state = ReadClusterState(name);
  if (!ClusterRuns(name) || !state.ok()) {
    if (json) std::printf("{\"name\": \"%s\", \"running\": false}\n", name.c_str());
    PrintLine(StrCat("cluster ", name, " is not running; start it with freshet cluster up",
                     name == "default" ? "" : " --name " + name));
    return kExitNoConnection;
  }
  if (json) {
    const absl::StatusOr<std::string> text =
        ReadFile(ClusterFolder(name) + "/cluster.json", 4 << 20);
    std::printf("%s", text.ok() ? text->c_str() : StateToJson(*state).c_str());
    return kExitDone;
  }
  std::printf("cluster %s: %s, controller %s\n", name.c_str(),
              state->stopping ? "stops"
              : state->ready  ? "ready"
                              : "not complete",
              state->controller.c_str());
  std::printf("%s", DescribeCluster(*state).c_str());
  if (const std::string page = StatusPage(*state); !page.empty()) {
    std::printf("status page: %s\n", page.c_str());
  }
  std::printf("state and logs: %s\n", ClusterFolder(name).c_str());
  return kExitDone;
}

// Each rollout has a server of its own, because the server has one set of weights.
absl::Status CheckEngine(const ClusterUpFlags& flags) {
  const size_t servers = flags.engine_addresses.size();
  if (flags.engine_weights == "nccl" && flags.rollout_engine != "vllm") {
    return InvalidArgument("--rollout-engine-weights nccl needs --rollout-engine vllm, not ",
                           flags.rollout_engine);
  }
  if (flags.rollout_engine == "native") {
    return servers == 0 && flags.engine_folders.empty()
               ? absl::OkStatus()
               : InvalidArgument(
                     "--rollout-engine-address and --rollout-engine-dir need --rollout-engine");
  }
  if (servers == static_cast<size_t>(flags.rollouts) && flags.engine_folders.size() == servers) {
    return absl::OkStatus();
  }
  return InvalidArgument("--rollout-engine ", flags.rollout_engine, " with ", flags.rollouts,
                         " rollouts needs as many --rollout-engine-address and ",
                         "--rollout-engine-dir, got ", servers, " and ",
                         flags.engine_folders.size());
}

// A model server that reward workers ask is one of this cluster, and the only answer to its flag.
absl::Status CheckAsked(const std::vector<ModelServer>& servers, const char* flag,
                        const std::string& name, const char* other,
                        const runtime::HttpServerFlags& offered) {
  if (name.empty()) return absl::OkStatus();
  if (!offered.address.empty()) {
    return InvalidArgument(flag, " and ", other, " exclude each other");
  }
  if (!offered.ca_file.empty() || !offered.token_file.empty()) {
    return InvalidArgument(other, "-token-file and ", other, "-ca exclude ", flag,
                           ": the server is on loopback, without TLS; leave them out");
  }
  for (const ModelServer& server : servers) {
    if (server.name == name) return absl::OkStatus();
  }
  return InvalidArgument(flag, " ", name, ": there is no --model-server ", name, "=DIR");
}

absl::Status CheckModelServers(const ClusterUpFlags& flags) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<ModelServer> servers,
                           ParseModelServers(flags.model_servers));
  FRESHET_RETURN_IF_ERROR(
      CheckAsked(servers, "--judge-server", flags.judge_server, "--judge", flags.offered.judge));
  return CheckAsked(servers, "--reward-model-server", flags.reward_model_server, "--reward-model",
                    flags.offered.reward_model);
}

void AddUpFlags(const Command& command, ClusterUpFlags& flags) {
  command.Add("--rollouts", flags.rollouts, "rollout engines").Range(0, kMaxWorkers).ShowDefault();
  command.Add("--rewards", flags.rewards, "reward workers").Range(0, kMaxWorkers).ShowDefault();
  command.Add("--envs", flags.envs, "environment workers").Range(0, kMaxWorkers).ShowDefault();
  command.Add("--trainers", flags.trainers, "trainers").Range(0, kMaxWorkers).ShowDefault();
  command.AddFlag("--standby", flags.standby, "a second controller that takes over");
  command.Add("--port", flags.port, "of the controller; 0: any free one")
      .Range(0, 65535)
      .ShowDefault();
  command.Add("--timeout", flags.timeout_seconds, "seconds to wait until everything is ready")
      .Range(1.0, 3600.0)
      .ShowDefault();
  command
      .Add("--data-root", flags.data_roots,
           "folder below which jobs may name files, besides your home; repeatable")
      .ExistingFolder();
  command.Add("--rollout-engine", flags.rollout_engine, "what the rollouts generate with")
      .OneOf({"native", "vllm", "sglang"})
      .ShowDefault();
  command
      .Add("--rollout-engine-address", flags.engine_addresses,
           "HOST:PORT of the inference server of a rollout; once for each")
      .OneValueEach();
  command
      .Add("--rollout-engine-dir", flags.engine_folders,
           "folder that a rollout shares with its inference server; once for each")
      .OneValueEach();
  command
      .Add("--rollout-engine-weights", flags.engine_weights,
           "how new weights get into running servers: folder, or nccl (vLLM)")
      .OneOf({"folder", "nccl"})
      .ShowDefault();
  command
      .Add("--model-server", flags.model_servers,
           "NAME=DIR: serve the model in DIR under this name, for judges and reward models; "
           "repeatable")
      .OneValueEach();
  command.Add("--judge-server", flags.judge_server,
              "NAME of the model server that is the judge, instead of --judge");
  command.Add("--reward-model-server", flags.reward_model_server,
              "NAME of the model server that is the reward model, instead of --reward-model");
  runtime::AddRewardFlags(command, flags.offered);
  command.AfterParsing([&flags] { return CheckEngine(flags); });
  command.AfterParsing([&flags] { return CheckModelServers(flags); });
  command.Add("--bin-dir", flags.binary_folder, "folder of the roles' programs").Hidden();
}

void AddName(const Command& command, std::string& name) {
  command.Add("--name", name, "of the cluster").Check([](const std::string& text) {
    return IsClusterName(text)
               ? std::string()
               : StrCat("\"", text, "\" is not a valid name; use ", kClusterNameRule);
  });
}

}  // namespace

void AddClusterCommands(const Command& app, ConnectionFlags& connection) {
  const Command cluster = app.AddCommand(
      "cluster", "manage a cluster on this machine; check the health of any cluster");
  cluster.RequireCommand();
  ClusterUpFlags& flags = app.Keep<ClusterUpFlags>();
  const Command up = cluster.AddCommand("up", "start a cluster, or show the running one");
  AddName(up, flags.name);
  AddUpFlags(up, flags);
  up.AddFlag("--foreground", flags.foreground, "stay in the foreground; Ctrl-C stops the cluster");
  up.OnRun([&flags] { return ClusterUp(flags); });

  std::string& name = app.Keep<std::string>("default");
  bool& delete_data = app.Keep<bool>(false);
  const Command down = cluster.AddCommand("down", "drain and stop it; keeps jobs and checkpoints");
  AddName(down, name);
  down.AddFlag("--delete-data", delete_data, "also remove jobs, checkpoints and logs");
  down.OnRun([&] { return Down(name, delete_data); });

  bool& json = app.Keep<bool>(false);
  const Command status = cluster.AddCommand("status", "show its processes, ports and health");
  AddName(status, name);
  status.AddFlag("--json", json, "as JSON");
  status.OnRun([&] { return Status(name, json); });

  double& seconds = app.Keep<double>(0);
  const Command health = cluster.AddCommand(
      "health", "exit 0 if a job can be trained: controller, datastore, a worker of each role");
  health.Add("--wait", seconds, "seconds to wait for that").Range(0.0, 86'400.0);
  std::vector<std::string>& roles = app.Keep<std::vector<std::string>>(kRolesOfAJob);
  health.Add("--need", roles, "roles that need a ready worker; default: rollout,reward,trainer")
      .SplitAtCommas()
      .OneOf({"rollout", "reward", "env", "trainer"});
  OnSession(health, connection, [&](const Session& session) {
    return CheckClusterHealth(session, roles, absl::Seconds(seconds));
  });
}

}  // namespace freshet
