// freshet: the command line. Does not link LibTorch: commands that compute are run by freshet-local
// in the same folder.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/version.h"
#include "cli/client/session.h"
#include "cli/cluster/cluster_commands.h"
#include "cli/commands/checkpoint_commands.h"
#include "cli/commands/cluster_view_commands.h"
#include "cli/commands/control_commands.h"
#include "cli/commands/job_commands.h"
#include "cli/commands/plan_command.h"
#include "cli/commands/query_commands.h"
#include "cli/commands/run_commands.h"
#include "cli/commands/submit_commands.h"
#include "cli/commands/text_commands.h"
#include "cli/commands/tool_commands.h"

namespace {

constexpr const char* kComputeCommands[] = {"local", "score", "generate", "serve"};

// Rendering with the chat template needs no LibTorch, the conversation with a model does.
bool IsInteractiveChat(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "chat") != 0) return false;
  return std::none_of(argv + 2, argv + argc, [](const char* argument) {
    return std::string_view(argument).starts_with("--messages");
  });
}

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
  if (IsInteractiveChat(argc, argv)) return ExecLocal(argv);
  freshet::CommandLine app("Freshet: asynchronous reinforcement learning for language models",
                           "freshet");
  app.AddVersionFlag(freshet::VersionLine("freshet"));
  app.RequireCommand();
  for (const char* command : kComputeCommands) {
    app.AddCommand(command, std::string("see freshet ") + command + " --help");
  }
  freshet::ConnectionFlags connection;
  freshet::AddConnectionFlags(app, connection);
  freshet::AddClusterCommands(app, connection);
  freshet::AddSubmitCommands(app, connection);
  freshet::AddQueryCommands(app, connection);
  freshet::AddClusterViewCommands(app, connection);
  freshet::AddControlCommands(app, connection);
  freshet::AddCheckpointCommands(app, connection);
  freshet::AddJobCommands(app);
  freshet::AddPlanCommand(app);
  freshet::AddRunCommands(app, connection);
  freshet::AddTextCommands(app);
  freshet::AddToolCommands(app, connection);
  if (argc > 1 && argv[1][0] != '-' && !app.HasCommand(argv[1])) {
    std::fprintf(stderr, "freshet: %s: unknown command; freshet --help lists them\n", argv[1]);
    return freshet::kExitCommandLine;
  }
  return app.Run(argc, argv);
}
