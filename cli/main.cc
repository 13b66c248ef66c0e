// freshet: the command line. Does not link LibTorch: commands that compute are run by freshet-local
// in the same folder.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/exit_code.h"
#include "base/version.h"
#include "cli/client/session.h"
#include "cli/cluster/cluster_commands.h"
#include "cli/commands/checkpoint_commands.h"
#include "cli/commands/cluster_view_commands.h"
#include "cli/commands/control_commands.h"
#include "cli/commands/job_commands.h"
#include "cli/commands/query_commands.h"
#include "cli/commands/run_commands.h"
#include "cli/commands/submit_commands.h"
#include "cli/commands/tool_commands.h"

namespace {

constexpr const char* kComputeCommands[] = {"local", "score", "generate"};

// Executes freshet-local with the same arguments. Returns only on failure.
int ExecLocal(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string binary = (self.parent_path() / "freshet-local").string();
  ::execv(binary.c_str(), argv);
  std::fprintf(stderr, "freshet: %s: cannot be started: %s; build it with ./dev build\n",
               binary.c_str(), std::strerror(errno));
  return freshet::kExitInternal;
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* command : kComputeCommands) {
    if (argc > 1 && std::strcmp(argv[1], command) == 0) return ExecLocal(argv);
  }
  CLI::App app("Freshet: asynchronous reinforcement learning for language models", "freshet");
  app.set_version_flag("--version", freshet::VersionLine("freshet"));
  app.require_subcommand(1);
  for (const char* command : kComputeCommands) {
    app.add_subcommand(command, std::string("see freshet ") + command + " --help");
  }
  int code = freshet::kExitDone;
  freshet::ConnectionFlags connection;
  freshet::AddConnectionFlags(app, connection);
  freshet::AddClusterCommands(app, connection, code);
  freshet::AddSubmitCommands(app, connection, code);
  freshet::AddQueryCommands(app, connection, code);
  freshet::AddClusterViewCommands(app, connection, code);
  freshet::AddControlCommands(app, connection, code);
  freshet::AddCheckpointCommands(app, connection, code);
  freshet::AddJobCommands(app, code);
  freshet::AddRunCommands(app, connection, code);
  freshet::AddToolCommands(app, connection, code);
  const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    std::fprintf(stderr, "freshet: %s: unknown command; freshet --help lists them\n", argv[1]);
    return freshet::kExitCommandLine;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? freshet::kExitDone : freshet::kExitCommandLine;
  }
  return code;
}
