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
constexpr char kRunModule[] = R"(import importlib, sys
if sys.path[0] == "":
    del sys.path[0]
try:
    main = importlib.import_module(sys.argv.pop(1)).main
except ImportError as fault:
    sys.exit(f"freshet: {sys.executable}: {fault}; in a checkout of Freshet, install its Python client "
             "with ./dev python, then . .venv/bin/activate; or name another Python with --python")
sys.exit(main())
)";

// Replaces this process by a module of the Python client. Returns only on failure.
int RunPythonModule(const std::string& python, const std::string& module,
                    const std::vector<std::string>& arguments) {
  std::vector<std::string> args = {python, "-c", kRunModule, module};
  args.insert(args.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  PrintLine(StrCat(python, ": cannot be started: ", std::strerror(errno),
                   "; install Python 3.9 or newer, or name it with --python or FRESHET_PYTHON"));
  return kExitInternal;
}

void AddPythonFlag(const Command& command, std::string& python) {
  command.Add("--python", python, "Python that has Freshet's client (default python3)")
      .Variable("FRESHET_PYTHON");
}

struct ExportOptions {
  std::string run, dir;
  std::string python = "python3";
  bool follow = false;
};

// Secrets travel in files and variables, never in the arguments, which other users can read.
absl::StatusOr<std::vector<std::string>> ExportArguments(const ConnectionFlags& connection,
                                                         const std::string& tracker,
                                                         const ExportOptions& options) {
  std::vector<std::string> args = {tracker};
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

int Export(const ConnectionFlags& connection, const std::string& tracker,
           const ExportOptions& options) {
  absl::StatusOr<std::vector<std::string>> args = ExportArguments(connection, tracker, options);
  if (!args.ok()) {
    PrintError(args.status());
    return absl::IsNotFound(args.status()) ? kExitContent : kExitCommandLine;
  }
  return RunPythonModule(options.python, "freshet.export", *args);
}

void AddExportCommands(const Command& app, ConnectionFlags& connection) {
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
    AddPythonFlag(tracker, options.python);
    AddConnectionFlags(tracker, connection);
    tracker.OnRun([name, &options, &connection] { return Export(connection, name, options); });
  };
  add_tracker("tensorboard", "as an event file of TensorBoard");
  add_tracker("wandb", "as a new run of Weights & Biases; WANDB_MODE=offline needs no account");
  add_tracker("mlflow", "as a new run of MLflow, at MLFLOW_TRACKING_URI");
}

struct ConvertOptions {
  std::string source, out, columns, prefix;
  std::string python = "python3";
  int64_t limit = 0;  // 0: all rows
  bool force = false;
};

int Convert(const ConvertOptions& options) {
  std::vector<std::string> args;
  // One argument each, because a value may begin with '-'.
  if (!options.columns.empty()) args.push_back(StrCat("--columns=", options.columns));
  if (!options.prefix.empty()) args.push_back(StrCat("--prefix=", options.prefix));
  if (options.limit > 0) args.push_back(StrCat("--limit=", options.limit));
  if (options.force) args.emplace_back("--force");
  args.insert(args.end(), {"--", options.source, options.out});
  return RunPythonModule(options.python, "freshet.convert", args);
}

void AddDataCommands(const Command& app) {
  const Command data = app.AddCommand("data", "prepare datasets");
  data.RequireCommand();
  const Command convert =
      data.AddCommand("convert", "write Parquet files as the JSON Lines of dataset.type jsonl");
  ConvertOptions& options = app.Keep<ConvertOptions>();
  convert.Add("SOURCE", options.source, "Parquet file, or folder of them").Required();
  convert.Add("OUT", options.out, "JSON Lines file to write").Required();
  convert.Add("--columns", options.columns, "columns to write, separated by commas (default all)");
  convert.Add("--prefix", options.prefix, "read a folder's files whose names begin with this");
  convert.Add("--limit", options.limit, "number of rows to write (default all)").Positive();
  convert.AddFlag("--force", options.force, "replace OUT");
  AddPythonFlag(convert, options.python);
  convert.OnRun([&options] { return Convert(options); });
}

}  // namespace

void AddToolCommands(const Command& app, ConnectionFlags& connection) {
  std::string& model = app.Keep<std::string>();
  const Command doctor = app.AddCommand("doctor", "check whether this machine can run Freshet");
  doctor.Add("--model", model, "also look at this Hugging Face directory");
  AddConnectionFlags(doctor, connection);
  doctor.OnRun([&] { return Doctor(connection, model); });

  AddDataCommands(app);
  AddExportCommands(app, connection);

  std::string& shell = app.Keep<std::string>();
  const Command completion = app.AddCommand("completion", "print a shell's completion script");
  completion.Add("SHELL", shell, "bash, zsh or fish").Required().OneOf({"bash", "zsh", "fish"});
  completion.OnRun([&shell, app] {
    std::printf("%s", CompletionScript(app.Describe(), shell).c_str());
    return kExitDone;
  });
}

}  // namespace freshet
