#include "cli/commands/tool_commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/str_cat.h"
#include "cli/client/job_events.h"
#include "cli/commands/completion.h"
#include "cli/commands/run_commands.h"
#include "cli/format/job_text.h"
#include "cli/machine/machine_facts.h"
#include "cli/tensorboard/event_file.h"

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

int ShowExport(const absl::StatusOr<std::string>& path, const std::string& folder) {
  if (!path.ok()) {
    PrintError(path.status());
    return ContentExitCode(path.status());
  }
  std::printf("%s\n", path->c_str());
  std::fprintf(stderr, "next: tensorboard --logdir %s\n", folder.c_str());
  return kExitDone;
}

int TensorboardOfRun(const std::string& run, const std::string& dir) {
  const std::string folder = dir.empty() ? run + "/tensorboard" : dir;
  return ShowExport(ExportTensorboard(run, folder), folder);
}

// By default `dir` is below the current folder, so that TensorBoard shows jobs side by side.
int TensorboardOfJob(const ConnectionFlags& connection, const std::string& id,
                     const std::string& dir) {
  return WithSession(connection, [&](const Session& session) {
    const absl::StatusOr<job::v1::Job> job = session.client().Get(id);
    if (absl::IsUnavailable(job.status()) && !session.target().named) {
      PrintLine(StrCat(id, ": is not a run folder, and no cluster answers at ",
                       session.target().address, "; name a run folder, or --server"));
      return static_cast<int>(kExitContent);
    }
    if (!job.ok()) return session.Fail(job.status());
    const absl::StatusOr<std::vector<std::string>> rows = ReadMetricsRows(session.client(), id);
    if (!rows.ok()) return session.Fail(rows.status());
    const std::string folder = dir.empty() ? "tensorboard/" + id : dir;
    const absl::Time begin = ToTime(job->has_started() ? job->started() : job->created());
    const double start = absl::ToDoubleSeconds(begin - absl::UnixEpoch());
    return ShowExport(WriteEventFile(SurvivingHistory(*rows), start, folder), folder);
  });
}

}  // namespace

void AddToolCommands(CLI::App& app, ConnectionFlags& connection, int& code) {
  auto model = std::make_shared<std::string>();
  CLI::App* doctor = app.add_subcommand("doctor", "check whether this machine can run Freshet");
  doctor->add_option("--model", *model, "also look at this Hugging Face directory");
  AddConnectionFlags(*doctor, connection);
  doctor->callback([model, &connection, &code] { code = Doctor(connection, *model); });

  auto run = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  CLI::App* exports = app.add_subcommand("export", "export the metrics of a run or a job");
  exports->require_subcommand(1);
  CLI::App* tensorboard = exports->add_subcommand("tensorboard", "as TensorBoard's event files");
  tensorboard->add_option("RUN", *run, "run folder, or id of a job of the cluster")->required();
  tensorboard->add_option("DIR", *folder,
                          "folder for the files (default RUN/tensorboard, or tensorboard/JOB)");
  AddConnectionFlags(*tensorboard, connection);
  tensorboard->callback([run, folder, &connection, &code] {
    code = IsRunFolder(*run) ? TensorboardOfRun(*run, *folder)
                             : TensorboardOfJob(connection, *run, *folder);
  });

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
