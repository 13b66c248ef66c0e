#include "cli/commands/submit_commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "cli/client/job_events.h"
#include "cli/client/job_follower.h"
#include "cli/commands/local_paths.h"
#include "job/config_error.h"
#include "job/job_parser.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxJobBytes = 4 << 20;

struct SubmitFlags {
  std::string file;
  std::string id;
  std::vector<std::string> overrides;
  int priority = 0;
  bool wait = false;
  bool follow = false;
  bool dry_run = false;
  double timeout_seconds = 0;
  double min_gain = 0;
  bool has_min_gain = false;
};

void Write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

absl::Duration TimeLimit(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

// Checks that a succeeded job's last evaluation exceeds its first by at least `min_gain`, on each
// evaluation set.
int CheckGain(const Session& session, const std::string& id, double min_gain) {
  const absl::StatusOr<std::vector<std::string>> rows = ReadMetricsRows(session.client(), id);
  if (!rows.ok()) return session.Fail(rows.status());
  const std::vector<EvalMetrics> evals = SurvivingHistory(*rows).evals;
  std::map<std::string, std::vector<double>> sets;  // accuracies by version
  for (const EvalMetrics& eval : evals) sets[eval.eval_name].push_back(eval.eval_accuracy);
  const bool enough =
      std::all_of(sets.begin(), sets.end(), [](const auto& set) { return set.second.size() > 1; });
  if (sets.empty() || !enough) {
    PrintLine(StrCat("job ", id, " has ", evals.size(),
                     " evaluations; --min-gain compares the last one with the first"));
    return kExitInternal;
  }
  int code = kExitDone;
  for (const auto& [name, accuracies] : sets) {
    const double gain = accuracies.back() - accuracies.front();
    if (gain >= min_gain - 1e-9) continue;  // tolerates rounding errors
    PrintLine(StrCat("evaluation ", name, gain < 0 ? " fell" : " rose", " by ", std::abs(gain),
                     ", less than ", min_gain));
    code = kExitInternal;
  }
  return code;
}

int DryRun(const Session& session, const job::v1::SubmitRequest& submit) {
  job::v1::ValidateRequest request;
  request.set_yaml(submit.yaml());
  request.set_file_name(submit.file_name());
  *request.mutable_overrides() = submit.overrides();
  const absl::StatusOr<job::v1::ValidateReply> reply = session.client().Validate(request);
  if (!reply.ok()) return session.Fail(reply.status());
  Write(reply->yaml());
  std::fprintf(stderr, "%s is valid; nothing was submitted. next: freshet submit %s\n",
               submit.file_name().c_str(), submit.file_name().c_str());
  return kExitDone;
}

int Submit(const ConnectionFlags& connection, const SubmitFlags& flags) {
  if (flags.has_min_gain && !flags.wait && !flags.follow) {
    PrintLine("--min-gain needs the job's end: add --wait or -f");
    return kExitCommandLine;
  }
  const absl::StatusOr<std::string> text = ReadFile(flags.file, kMaxJobBytes);
  if (!text.ok()) {
    PrintError(text.status());
    return kExitContent;
  }
  // Same parser as the server's, so that errors in the file are reported without a server.
  const JobResult job = ParseJob(*text, flags.file, flags.overrides);
  if (!job.errors.empty()) {
    PrintError(absl::InvalidArgumentError(FormatConfigErrors(job.errors)));
    return kExitContent;
  }
  return WithSession(connection, [&](const Session& session) {
    job::v1::SubmitRequest request;
    request.set_job_id(flags.id);
    request.set_yaml(*text);
    request.set_file_name(flags.file);
    request.set_priority(flags.priority);
    for (const std::string& entry : flags.overrides) request.add_overrides(entry);
    for (const std::string& entry : AbsolutePathOverrides(job.spec, session.target().address)) {
      request.add_overrides(entry);
    }
    if (flags.dry_run) return DryRun(session, request);
    const absl::StatusOr<job::v1::Job> submitted = session.client().Submit(request);
    if (!submitted.ok()) return session.Fail(submitted.status());
    const std::string& id = submitted->id();
    Write(id + "\n");
    if (!flags.wait && !flags.follow) {
      std::fprintf(stderr, "next: freshet watch %s\n", id.c_str());
      return static_cast<int>(kExitDone);
    }
    FollowOptions options;
    options.show = flags.follow ? FollowOptions::Show::kEvents : FollowOptions::Show::kNothing;
    options.from_start = true;
    options.timeout = TimeLimit(flags.timeout_seconds);
    options.ask_twice = true;
    const int code = FollowJob(session, id, options, DescribeTerminal(), Write);
    if (code != kExitDone || !flags.has_min_gain) return code;
    return CheckGain(session, id, flags.min_gain);
  });
}

}  // namespace

void AddSubmitCommands(const Command& app, ConnectionFlags& connection) {
  SubmitFlags& flags = app.Keep<SubmitFlags>();
  const Command submit = app.AddCommand("submit", "send a job to a cluster; prints its id");
  submit.Add("FILE", flags.file, "job file (YAML)").Required();
  submit.Add("--id", flags.id, "id of the job; submitting it again is idempotent");
  submit.Add("--set", flags.overrides, "override a key: a.b=c").OneValueEach();
  submit.Add("--priority", flags.priority, "larger runs first").Range(-100, 100);
  submit.AddFlag("--wait", flags.wait, "return when the job has ended, with its exit code");
  submit.AddFlag("-f,--follow", flags.follow, "follow the job to its end");
  submit.AddFlag("--dry-run", flags.dry_run, "only check it; prints the resolved job");
  submit.Add("--timeout", flags.timeout_seconds, "maximum seconds to wait; then exit 8").Positive();
  const Option min_gain =
      submit.Add("--min-gain", flags.min_gain,
                 "exit 1 if the last evaluation exceeds the first by less than this");
  AddConnectionFlags(submit, connection);
  submit.OnRun([&flags, &connection, min_gain] {
    flags.has_min_gain = min_gain.given();
    return Submit(connection, flags);
  });

  std::string& job = app.Keep<std::string>();
  FollowOptions& options = app.Keep<FollowOptions>();
  double& seconds = app.Keep<double>(0);
  bool& json = app.Keep<bool>(false);
  const Command watch = app.AddCommand("watch", "follow a job to its end");
  watch.Add("JOB", job, "id of the job").Required();
  watch.AddFlag("--json", json, "events as JSON lines");
  watch.AddFlag("--from-start", options.from_start,
                "start with the first event (default if stdout is not a terminal)");
  watch.Add("--timeout", seconds, "maximum seconds to watch; then exit 8").Positive();
  OnSession(watch, connection, [&](const Session& session) {
    const Terminal terminal = DescribeTerminal();
    options.timeout = TimeLimit(seconds);
    options.from_start = options.from_start || !terminal.out;
    if (json) options.show = FollowOptions::Show::kJson;
    return FollowJob(session, job, options, terminal, Write);
  });
}

}  // namespace freshet
