#include "cli/commands/job_commands.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "job/job_explain.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "local/job_setup.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxJobBytes = 4 << 20;

int Fail(const absl::Status& status) {
  PrintError(status);
  return ContentExitCode(status);
}

int Validate(const std::string& path, const std::vector<std::string>& overrides) {
  const absl::StatusOr<JobResult> job = ReadJob(path, overrides);
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<std::unique_ptr<JobSetup>> setup = PrepareJob(job->spec, job->places);
  if (!setup.ok()) return Fail(setup.status());
  std::printf("%s# loss expands to: %s\n", WriteJobYaml(job->spec).c_str(),
              DescribeLoss((*setup)->loss).c_str());
  const auto uncorrected = UncorrectedStaleness((*setup)->loss, job->spec.staleness().max());
  if (uncorrected.has_value()) std::printf("# warning: %s\n", uncorrected->c_str());
  return kExitDone;
}

int Explain(const std::string& key) {
  const absl::StatusOr<std::string> text = ExplainKey(key);
  if (!text.ok()) {
    PrintError(text.status());
    return kExitCommandLine;
  }
  std::printf("%s", text->c_str());
  if (text->empty() || text->back() != '\n') std::printf("\n");
  return kExitDone;
}

int Init(const std::string& path) {
  if (path.empty()) {
    std::printf("%s", InitJobTemplate().c_str());
    return kExitDone;
  }
  if (ReadFile(path, kMaxJobBytes).ok()) {
    return Fail(absl::FailedPreconditionError(path + ": exists already; name another file"));
  }
  const absl::Status status = WriteFileAtomically(path, InitJobTemplate());
  if (!status.ok()) return Fail(status);
  std::printf("%s written; next: freshet validate %s, then freshet local %s\n", path.c_str(),
              path.c_str(), path.c_str());
  return kExitDone;
}

}  // namespace

void AddJobCommands(CLI::App& app, int& code) {
  auto job = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  CLI::App* validate = app.add_subcommand("validate", "print the resolved job, or all its errors");
  validate->add_option("JOB", *job, "job file (YAML)")->required();
  validate->add_option("--set", *overrides, "override a key: a.b=c")->allow_extra_args(false);
  validate->callback([job, overrides, &code] { code = Validate(*job, *overrides); });

  auto key = std::make_shared<std::string>();
  CLI::App* explain = app.add_subcommand("explain", "explain a key of a job file");
  explain->add_option("KEY", *key, "such as reward.timeout_ms; default: all keys");
  explain->callback([key, &code] { code = Explain(*key); });

  auto out = std::make_shared<std::string>();
  CLI::App* init = app.add_subcommand("init", "write a commented job file");
  init->add_option("FILE", *out, "new file; default: stdout");
  init->callback([out, &code] { code = Init(*out); });
}

}  // namespace freshet
