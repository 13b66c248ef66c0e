#include "cli/commands/job_commands.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "job/job_explain.h"
#include "job/job_kind.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "local/job_setup.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxJobBytes = 4 << 20;

void Print(const JobResult& job, const JobSetup& setup) {
  if (!job.policy.empty()) std::printf("--- # policy %s\n", job.policy.c_str());
  std::printf("%s", WriteJobYaml(job.spec).c_str());
  if (Generates(job.spec)) return;
  std::printf("# loss expands to: loss: %s\n", DescribeLoss(setup.loss).c_str());
  const auto uncorrected = UncorrectedStaleness(setup.loss, job.spec.staleness().max());
  if (uncorrected.has_value()) std::printf("# warning: %s\n", uncorrected->c_str());
}

int Validate(const std::string& path, const std::vector<std::string>& overrides) {
  const absl::StatusOr<std::vector<JobResult>> jobs = ReadJobs(path, overrides);
  if (!jobs.ok()) return FailContent(jobs.status());
  for (const JobResult& job : *jobs) {
    const absl::StatusOr<std::unique_ptr<JobSetup>> setup = PrepareJob(job.spec, job.places);
    if (!setup.ok()) return FailContent(setup.status());
    Print(job, **setup);
  }
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
    return FailContent(absl::FailedPreconditionError(path + ": exists already; name another file"));
  }
  const absl::Status status = WriteFileAtomically(path, InitJobTemplate());
  if (!status.ok()) return FailContent(status);
  std::printf("%s written; next: freshet validate %s, then freshet local %s\n", path.c_str(),
              path.c_str(), path.c_str());
  return kExitDone;
}

}  // namespace

void AddJobCommands(const Command& app) {
  std::string& job = app.Keep<std::string>();
  std::vector<std::string>& overrides = app.Keep<std::vector<std::string>>();
  const Command validate = app.AddCommand("validate", "print the resolved job, or all its errors");
  validate.Add("JOB", job, "job file (YAML)").Required();
  validate.Add("--set", overrides, "override a key: a.b=c").OneValueEach();
  validate.OnRun([&] { return Validate(job, overrides); });

  std::string& key = app.Keep<std::string>();
  const Command explain = app.AddCommand("explain", "explain a key of a job file");
  explain.Add("KEY", key, "such as reward.timeout_ms; default: all keys");
  explain.OnRun([&key] { return Explain(key); });

  std::string& out = app.Keep<std::string>();
  const Command init = app.AddCommand("init", "write a commented job file");
  init.Add("FILE", out, "new file; default: stdout");
  init.OnRun([&out] { return Init(out); });
}

}  // namespace freshet
