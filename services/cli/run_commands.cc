#include "services/cli/run_commands.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "model/tokenizer.h"
#include "nlohmann/json.hpp"
#include "services/base/str_cat.h"
#include "services/cli/exit_code.h"
#include "services/runfolder/ledger_verifier.h"
#include "services/runfolder/report.h"

namespace freshet {
namespace {

int Fail(const absl::Status& status) {
  PrintError(status);
  return ContentExitCode(status);
}

int VerifyLedger(const std::string& run_dir) {
  const absl::StatusOr<VerifyReport> report = VerifyRun(run_dir);
  if (!report.ok()) return Fail(report.status());
  std::printf("%s", FormatVerifyReport(*report).c_str());
  return report->ok ? kExitDone : kExitInternal;
}

int Report(const std::string& run_dir) {
  const absl::Status status = WriteReport(run_dir);
  if (!status.ok()) return Fail(status);
  std::printf("%s/report.html\n", run_dir.c_str());
  return kExitDone;
}

// JSON strings on stdin, one a line; {"ids", "decoded"} a line on stdout.
int Tokenize(const std::string& directory) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(directory);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const nlohmann::json text = nlohmann::json::parse(line, nullptr, false);
    if (!text.is_string()) {
      return Fail(InvalidArgument("stdin:", number, ": not a JSON string"));
    }
    const absl::StatusOr<std::vector<int32_t>> ids = (*tokenizer)->Encode(text.get<std::string>());
    if (!ids.ok()) {
      return Fail(StatusOf(ids.status().code(), "stdin:", number, ": ", Message(ids.status())));
    }
    const nlohmann::ordered_json row = {
        {"ids", *ids}, {"decoded", (*tokenizer)->Decode(*ids, /*skip_special=*/false)}};
    std::printf("%s\n", row.dump().c_str());
  }
  return kExitDone;
}

}  // namespace

void AddRunCommands(CLI::App& app, int& code) {
  CLI::App* ledger = app.add_subcommand("ledger", "the record of what was trained on");
  ledger->require_subcommand(1);
  auto run_dir = std::make_shared<std::string>();
  CLI::App* verify = ledger->add_subcommand("verify", "recompute every promise of a run");
  verify->add_option("RUN", *run_dir, "run folder")->required();
  verify->callback([run_dir, &code] { code = VerifyLedger(*run_dir); });

  auto report_dir = std::make_shared<std::string>();
  CLI::App* report = app.add_subcommand("report", "write a run's report.html anew");
  report->add_option("RUN", *report_dir, "run folder")->required();
  report->callback([report_dir, &code] { code = Report(*report_dir); });

  auto model = std::make_shared<std::string>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "token ids of JSON strings on stdin");
  tokenize->add_option("MODEL", *model, "directory with tokenizer.json")->required();
  tokenize->callback([model, &code] { code = Tokenize(*model); });
}

}  // namespace freshet
