#include "cli/cluster/cluster_up.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "base/interrupt.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "cli/client/session.h"
#include "cli/client/user_folders.h"
#include "cli/cluster/cluster_daemon.h"
#include "cli/cluster/cluster_report.h"
#include "cli/machine/machine_facts.h"

namespace freshet {
namespace {

constexpr int kDefaultPort = 7070;

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (!error) return absolute.string();
  return FailedPrecondition(path, ": the current folder cannot be found: ", error.message(),
                            "; use an absolute path");
}

// Gives each model server a port, and reward workers the addresses of those that they ask.
absl::Status PlaceModelServers(const ClusterUpFlags& flags, ClusterLayout& layout) {
  FRESHET_ASSIGN_OR_RETURN(layout.model_servers, ParseModelServers(flags.model_servers));
  for (ModelServer& server : layout.model_servers) {
    std::error_code error;
    const std::filesystem::file_status found = std::filesystem::status(server.folder, error);
    if (!std::filesystem::is_directory(found)) {
      const bool unknown = found.type() == std::filesystem::file_type::none;
      return NotFound("--model-server ", server.name, ": ", server.folder,
                      unknown ? " cannot be read: " + error.message() : " is not a folder");
    }
    FRESHET_ASSIGN_OR_RETURN(server.folder, AbsolutePath(server.folder));
    server.port = FreePort();
    layout.wanted["model/" + server.name] = 1;
    if (server.name == flags.judge_server) layout.offered.judge.address = server.Address() + "/v1";
    if (server.name == flags.reward_model_server) {
      layout.offered.reward_model.address = server.Address();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterLayout> LayoutOf(const ClusterUpFlags& flags) {
  ClusterLayout layout;
  layout.name = flags.name;
  layout.folder = ClusterFolder(flags.name);
  layout.binary_folder = flags.binary_folder.empty() ? BinaryFolder() : flags.binary_folder;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    layout.data_roots.push_back(home);
  }
  for (const std::string& folder : flags.data_roots) {
    FRESHET_ASSIGN_OR_RETURN(std::string root, AbsolutePath(folder));
    layout.data_roots.push_back(std::move(root));
  }
  if (flags.rollout_engine != "native") layout.engine = flags.rollout_engine;
  layout.engine_weights = flags.engine_weights;
  layout.offered = flags.offered;
  for (runtime::HttpServerFlags* server :
       {&layout.offered.sandbox, &layout.offered.judge, &layout.offered.reward_model}) {
    for (std::string* file : {&server->ca_file, &server->token_file}) {
      if (!file->empty()) {
        FRESHET_ASSIGN_OR_RETURN(*file, AbsolutePath(*file));
      }
    }
  }
  for (size_t i = 0; i < flags.engine_addresses.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(std::string folder, AbsolutePath(flags.engine_folders[i]));
    layout.engine_servers.push_back({flags.engine_addresses[i], std::move(folder)});
  }
  layout.redis_program = FindProgram("redis-server");
  layout.redis_port = FreePort();
  layout.controller_ports = {FreePort(flags.port)};
  if (flags.standby) layout.controller_ports.push_back(FreePort());
  layout.wanted = {{"redis", 1},
                   {"controller", static_cast<int>(layout.controller_ports.size())},
                   {"rollout", flags.rollouts},
                   {"reward", flags.rewards},
                   {"env", flags.envs},
                   {"trainer", flags.trainers}};
  FRESHET_RETURN_IF_ERROR(PlaceModelServers(flags, layout));
  if (layout.redis_program.empty()) {
    return NotFound("redis-server is not found; apt install redis-server");
  }
  for (const auto& [group, count] : layout.wanted) {
    const std::string program = ProgramOf(layout, group.substr(0, group.find('/')));
    if (group != "redis" && count > 0 && ::access(program.c_str(), X_OK) != 0) {
      return NotFound(program, ": not found; build it with ./dev build");
    }
  }
  if (layout.controller_ports.front() == 0) {
    return FailedPrecondition("127.0.0.1:", flags.port,
                              " is taken by another program; use --port P (0: any free one)");
  }
  return layout;
}

int Supervise(const ClusterUpFlags& flags, const ClusterLayout& layout, int progress_fd) {
  DaemonOptions options;
  options.progress_fd = progress_fd;
  options.up_timeout = absl::Seconds(flags.timeout_seconds);
  return RunClusterDaemon(layout, options);
}

// Starts the supervisor in a new session; the returned descriptor delivers its progress lines.
absl::StatusOr<int> StartSupervisor(const ClusterUpFlags& flags, const ClusterLayout& layout,
                                    pid_t& pid) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return ResourceExhausted("pipe: ", std::strerror(errno));
  pid = ::fork();
  if (pid == 0) {
    ::setsid();
    ::close(pipe[0]);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
    std::exit(Supervise(flags, layout, pipe[1]));
  }
  ::close(pipe[1]);
  if (pid < 0) {
    ::close(pipe[0]);
    return ResourceExhausted("fork: ", std::strerror(errno));
  }
  return pipe[0];
}

// Prints the supervisor's lines until it is ready (true) or has ended.
bool AwaitUp(int fd) {
  std::FILE* file = ::fdopen(fd, "r");
  if (file == nullptr) return false;
  char* line = nullptr;
  size_t size = 0;
  bool up = false;
  while (!up && ::getline(&line, &size, file) > 0) {
    up = std::string(line) == StrCat(kUpLine, "\n");
    if (!up) std::fprintf(stderr, "%s", line);
  }
  std::free(line);
  std::fclose(file);
  return up;
}

int SayUp(const ClusterUpFlags& flags, const char* what) {
  const absl::StatusOr<ClusterState> state = ReadClusterState(flags.name);
  if (!state.ok()) {
    PrintError(state.status());
    return kExitInternal;
  }
  std::printf("cluster %s %s: controller %s\n", flags.name.c_str(), what,
              state->controller.c_str());
  std::printf("%s", DescribeCluster(*state).c_str());
  if (const std::string page = StatusPage(*state); !page.empty()) {
    std::printf("status page: %s\n", page.c_str());
  }
  const bool usual = state->controller == StrCat("127.0.0.1:", kDefaultPort);
  std::fprintf(
      stderr, "next: %s%sfreshet submit examples/arithmetic.yaml\n",
      usual ? "" : "export FRESHET_SERVER=", usual ? "" : (state->controller + "; ").c_str());
  return kExitDone;
}

}  // namespace

std::string ClusterFolder(const std::string& name) { return StateFolder() + "/clusters/" + name; }

int ClusterUp(const ClusterUpFlags& flags) {
  if (ClusterRuns(flags.name)) {
    const bool asks = !flags.data_roots.empty() || flags.rollout_engine != "native" ||
                      !flags.model_servers.empty();
    return SayUp(flags, asks ? "is up already, with its previous data roots, engines and model "
                               "servers (to change them: freshet cluster down, then up)"
                             : "is up already");
  }
  RemoveStrays(flags.name);
  const absl::StatusOr<ClusterLayout> layout = LayoutOf(flags);
  if (!layout.ok()) return FailContent(layout.status());
  if (flags.foreground) return Supervise(flags, *layout, /*progress_fd=*/-1);
  pid_t pid = -1;
  const absl::StatusOr<int> lines = StartSupervisor(flags, *layout, pid);
  if (!lines.ok()) {
    PrintError(lines.status());
    return kExitInternal;
  }
  const Interrupt interrupt([pid](int) { ::kill(pid, SIGTERM); });
  if (AwaitUp(*lines)) return SayUp(flags, "is up");
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (interrupt.count() > 0) return kExitInterrupted;
  PrintLine(StrCat("cluster ", flags.name, " did not come up; logs: ", ClusterFolder(flags.name),
                   "/logs, machine: freshet doctor"));
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : kExitInternal;
}

}  // namespace freshet
