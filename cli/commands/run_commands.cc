#include "cli/commands/run_commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/str_cat.h"
#include "cli/commands/checkpoint_commands.h"
#include "job/policies.h"
#include "runlog/ledger_verifier.h"
#include "runlog/report.h"

namespace freshet {
namespace {

// FAILED_PRECONDITION: the folder is no run, but holds some, such as those of a team's policies.
absl::Status CheckOneRun(const std::string& run_dir) {
  std::error_code error;
  const std::filesystem::path folder(run_dir);
  if (std::filesystem::exists(folder / "job.yaml", error)) return absl::OkStatus();
  std::vector<std::string> runs;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (std::filesystem::exists(entry->path() / "job.yaml", unknown)) {
      runs.push_back(entry->path().string());
    }
  }
  if (runs.empty()) return absl::OkStatus();
  std::sort(runs.begin(), runs.end());
  const bool more = runs.size() > kMaxPolicies;
  if (more) runs.resize(kMaxPolicies);
  return FailedPrecondition(run_dir, ": is no run; name one of: ", absl::StrJoin(runs, ", "),
                            more ? ", ..." : "");
}

int VerifyLedger(const std::string& run_dir) {
  if (const absl::Status one = CheckOneRun(run_dir); !one.ok()) return FailContent(one);
  const absl::StatusOr<VerifyReport> report = VerifyRun(run_dir);
  if (!report.ok()) return FailContent(report.status());
  std::printf("%s", FormatVerifyReport(*report).c_str());
  return report->ok ? kExitDone : kExitInternal;
}

int Report(const std::string& run_dir) {
  if (const absl::Status one = CheckOneRun(run_dir); !one.ok()) return FailContent(one);
  const absl::Status status = WriteReport(run_dir);
  if (!status.ok()) return FailContent(status);
  std::printf("%s/report.html\n", run_dir.c_str());
  return kExitDone;
}

}  // namespace

bool IsRunFolder(const std::string& argument) {
  std::error_code error;
  return argument.find('/') != std::string::npos || std::filesystem::exists(argument, error);
}

void AddRunCommands(const Command& app, ConnectionFlags& connection) {
  const Command ledger = app.AddCommand("ledger", "the record of trained samples");
  ledger.RequireCommand();
  std::string& run_dir = app.Keep<std::string>();
  const Command verify = ledger.AddCommand("verify", "verify every guarantee of a run");
  verify.Add("RUN", run_dir, "run folder, or id of a job of the cluster").Required();
  AddConnectionFlags(verify, connection);
  verify.OnRun([&] {
    return IsRunFolder(run_dir) ? VerifyLedger(run_dir) : VerifyJobLedger(connection, run_dir);
  });

  std::string& job_id = app.Keep<std::string>();
  std::string& new_folder = app.Keep<std::string>();
  const Command export_ledger =
      ledger.AddCommand("export", "write a job's ledger into a new folder");
  export_ledger.Add("JOB", job_id, "id of a job of the cluster").Required();
  export_ledger.Add("DIR", new_folder, "folder to make").Required();
  AddConnectionFlags(export_ledger, connection);
  export_ledger.OnRun([&] { return ExportJobLedger(connection, job_id, new_folder); });

  std::string& report_dir = app.Keep<std::string>();
  const Command report = app.AddCommand("report", "rewrite a run's report.html");
  report.Add("RUN", report_dir, "run folder").Required();
  report.OnRun([&report_dir] { return Report(report_dir); });
}

}  // namespace freshet
