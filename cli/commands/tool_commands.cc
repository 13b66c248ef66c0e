#include "cli/commands/tool_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "cli/commands/completion.h"
#include "cli/commands/run_commands.h"
#include "cli/format/job_text.h"
#include "cli/machine/machine_facts.h"

namespace freshet {
namespace {

int Doctor(const ConnectionFlags& connection, const std::string& model) {
  const std::vector<Finding> findings = Diagnose(GatherMachineFacts(connection, model));
  std::printf("%s", FormatFindings(findings, DescribeTerminal().color).c_str());
  const bool error = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.grade == Finding::Grade::kError;
  });
  return error ? kExitInternal : kExitDone;
}

// With `python3 -m`, modules in the current folder would come before the installed ones.
constexpr char kRunExport[] = R"(import sys
if sys.path[0] == "":
    del sys.path[0]
try:
    from freshet.export import main
except ImportError as fault:
    sys.exit(f"freshet: {sys.executable}: {fault}; in a checkout of Freshet, install its Python client "
             "with ./dev python, then . .venv/bin/activate; or name another Python with --python")
sys.exit(main())
)";

struct ExportOptions {
  std::string run, dir;
  std::string python = "python3";
  bool follow = false;
};

// Secrets travel in files and variables, never in the arguments, which other users can read.
absl::StatusOr<std::vector<std::string>> ExportArguments(const ConnectionFlags& connection,
                                                         const std::string& tracker,
                                                         const ExportOptions& options) {
  std::vector<std::string> args = {options.python, "-c", kRunExport, tracker};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) args.insert(args.end(), {flag, value});
  };
  if (!IsRunFolder(options.run)) {
    FRESHET_ASSIGN_OR_RETURN(const ServerTarget target, TargetOf(connection));
    if (target.named) add("--server", target.address);
    add("--ca", target.ca);
    add("--cert", target.cert);
    add("--key", target.key);
    add("--token-file", target.token_file);
    add("--token-file", target.cluster_token_file);
  }
  if (options.follow) args.emplace_back("--follow");
  args.insert(args.end(), {"--", options.run});
  if (!options.dir.empty()) args.push_back(options.dir);
  return args;
}

// Replaces this process by the Python client. Returns only on failure.
int Export(const ConnectionFlags& connection, const std::string& tracker,
           const ExportOptions& options) {
  absl::StatusOr<std::vector<std::string>> args = ExportArguments(connection, tracker, options);
  if (!args.ok()) {
    PrintError(args.status());
    return absl::IsNotFound(args.status()) ? kExitContent : kExitCommandLine;
  }
  std::vector<char*> argv;
  for (std::string& arg : *args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  PrintLine(StrCat(options.python, ": cannot be started: ", std::strerror(errno),
                   "; install Python 3.9 or newer, or name it with --python or FRESHET_PYTHON"));
  return kExitInternal;
}

}  // namespace

void AddToolCommands(const Command& app, ConnectionFlags& connection) {
  std::string& model = app.Keep<std::string>();
  const Command doctor = app.AddCommand("doctor", "check whether this machine can run Freshet");
  doctor.Add("--model", model, "also look at this Hugging Face directory");
  AddConnectionFlags(doctor, connection);
  doctor.OnRun([&] { return Doctor(connection, model); });

  const Command exports = app.AddCommand(
      "export", "write the metrics of a run or a job for TensorBoard, W&B or MLflow");
  exports.RequireCommand();
  const auto add_tracker = [&](const std::string& name, const char* description) {
    const Command tracker = exports.AddCommand(name, description);
    // Not shared: the environment is read for the options of every command.
    ExportOptions& options = app.Keep<ExportOptions>();
    tracker.Add("RUN", options.run, "run folder, or id of a job of the cluster").Required();
    if (name == "tensorboard") {
      tracker.Add("DIR", options.dir,
                  "folder for the file (default RUN/tensorboard, or tensorboard/JOB)");
    }
    tracker.AddFlag("--follow", options.follow, "go on until the run or job ends");
    tracker.Add("--python", options.python, "Python that has Freshet's client (default python3)")
        .Variable("FRESHET_PYTHON");
    AddConnectionFlags(tracker, connection);
    tracker.OnRun([name, &options, &connection] { return Export(connection, name, options); });
  };
  add_tracker("tensorboard", "as an event file of TensorBoard");
  add_tracker("wandb", "as a new run of Weights & Biases; WANDB_MODE=offline needs no account");
  add_tracker("mlflow", "as a new run of MLflow, at MLFLOW_TRACKING_URI");

  std::string& shell = app.Keep<std::string>();
  const Command completion = app.AddCommand("completion", "print a shell's completion script");
  completion.Add("SHELL", shell, "bash, zsh or fish").Required().OneOf({"bash", "zsh", "fish"});
  completion.OnRun([&shell, app] {
    std::printf("%s", CompletionScript(app.Describe(), shell).c_str());
    return kExitDone;
  });
}

}  // namespace freshet
