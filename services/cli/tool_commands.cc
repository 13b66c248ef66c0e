#include "services/cli/tool_commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "services/cli/completion.h"
#include "services/cli/exit_code.h"
#include "services/cli/machine_facts.h"
#include "services/cli/tensorboard/event_file.h"

namespace freshet {
namespace {

int Doctor(const ConnectionFlags& connection, const std::string& model) {
  const std::vector<Finding> findings = Diagnose(GatherMachineFacts(connection, model));
  std::printf("%s", FormatFindings(findings, DescribeTerminal().color).c_str());
  const bool fault = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.grade == Finding::Grade::kFault;
  });
  return fault ? kExitInternal : kExitDone;
}

int Tensorboard(const std::string& run, std::string folder) {
  if (folder.empty()) folder = run + "/tensorboard";
  const absl::StatusOr<std::string> path = ExportTensorboard(run, folder);
  if (!path.ok()) {
    PrintError(path.status());
    return ContentExitCode(path.status());
  }
  std::printf("%s\n", path->c_str());
  std::fprintf(stderr, "next: tensorboard --logdir %s\n", folder.c_str());
  return kExitDone;
}

}  // namespace

void AddToolCommands(CLI::App& app, ConnectionFlags& connection, int& code) {
  auto model = std::make_shared<std::string>();
  CLI::App* doctor =
      app.add_subcommand("doctor", "can this machine run Freshet? says what is missing");
  doctor->add_option("--model", *model, "also look at this Hugging Face directory");
  AddConnectionFlags(*doctor, connection);
  doctor->callback([model, &connection, &code] { code = Doctor(connection, *model); });

  auto run = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  CLI::App* exports = app.add_subcommand("export", "write a run's figures for other programs");
  exports->require_subcommand(1);
  CLI::App* tensorboard = exports->add_subcommand("tensorboard", "as TensorBoard's event files");
  tensorboard->add_option("RUN", *run, "run folder")->required();
  tensorboard->add_option("DIR", *folder, "folder for the files (default RUN/tensorboard)");
  tensorboard->callback([run, folder, &code] { code = Tensorboard(*run, *folder); });

  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "print a shell's completion script");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([shell, &app, &code] {
    std::printf("%s", CompletionScript(app, *shell).c_str());
    code = kExitDone;
  });
}

}  // namespace freshet
