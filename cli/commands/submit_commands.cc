#include "cli/commands/submit_commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "cli/client/job_events.h"
#include "cli/client/job_follower.h"
#include "cli/commands/local_paths.h"
#include "cli/commands/team_submission.h"
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

int DryRun(const Session& session, const std::vector<job::v1::SubmitRequest>& requests) {
  for (const job::v1::SubmitRequest& request : requests) {
    const absl::StatusOr<job::v1::ValidateReply> reply =
        session.client().Validate(ToValidateRequest(request));
    if (!reply.ok()) return session.Fail(reply.status());
    if (!request.policy().empty()) Write(StrCat("--- # policy ", request.policy(), "\n"));
    Write(reply->yaml());
  }
  const char* file = requests.front().file_name().c_str();
  std::fprintf(stderr, "%s is valid; nothing was submitted. next: freshet submit %s\n", file, file);
  return kExitDone;
}

// One request for each job of the file. Jobs of several policies have ids, ID-POLICY, and their
// team is ID.
std::vector<job::v1::SubmitRequest> MakeRequests(const SubmitFlags& flags, const std::string& id,
                                                 const std::string& text,
                                                 const std::vector<JobResult>& jobs,
                                                 const std::string& server) {
  std::vector<job::v1::SubmitRequest> requests;
  requests.reserve(jobs.size());
  for (const JobResult& job : jobs) {
    job::v1::SubmitRequest& request = requests.emplace_back();
    request.set_job_id(job.policy.empty() ? id : StrCat(id, "-", job.policy));
    request.set_yaml(text);
    request.set_file_name(flags.file);
    request.set_priority(flags.priority);
    request.set_policy(job.policy);
    for (const std::string& entry : flags.overrides) request.add_overrides(entry);
    if (!job.policy.empty()) request.add_overrides(StrCat("team=", id));
    for (const std::string& entry : AbsolutePathOverrides(job.spec, server)) {
      request.add_overrides(entry);
    }
  }
  return requests;
}

// Submits the jobs and sets their ids. Returns the exit code.
int Send(const Session& session, const std::vector<job::v1::SubmitRequest>& requests,
         std::vector<std::string>& ids) {
  if (requests.size() == 1) {
    const absl::StatusOr<job::v1::Job> submitted = session.client().Submit(requests.front());
    if (!submitted.ok()) return session.Fail(submitted.status());
    ids = {submitted->id()};
    return kExitDone;
  }
  TeamSubmission sent = SubmitTeam(session.client(), requests);
  if (sent.status.ok()) {
    ids = std::move(sent.ids);
    return kExitDone;
  }
  const int code = session.Fail(sent.status);
  for (const std::string& id : sent.cancelled) PrintLine(StrCat("job ", id, " is cancelled"));
  for (const std::string& id : sent.left) {
    PrintLine(StrCat("job ", id, " may run; cancel it with: freshet cancel ", id));
  }
  if (sent.cancelled.empty() && sent.left.empty()) PrintLine("nothing was submitted");
  return code;
}

int Follow(const Session& session, const SubmitFlags& flags, const std::vector<std::string>& ids) {
  const absl::Time deadline = absl::Now() + TimeLimit(flags.timeout_seconds);
  int first_code = kExitDone;
  for (const std::string& id : ids) {
    FollowOptions options;
    options.show = flags.follow ? FollowOptions::Show::kEvents : FollowOptions::Show::kNothing;
    options.from_start = true;
    options.timeout = deadline - absl::Now();
    options.ask_twice = true;
    int code = FollowJob(session, id, options, DescribeTerminal(), Write);
    if (code == kExitDone && flags.has_min_gain) code = CheckGain(session, id, flags.min_gain);
    if (code == kExitTimeout || code == kExitInterrupted) return code;
    if (first_code == kExitDone || code == kExitJobFailed) first_code = code;
  }
  return first_code;
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
  const JobFile file = ParseJobFile(*text, flags.file, flags.overrides);
  const absl::Status valid = file.errors.empty()
                                 ? CheckPools(file.jobs)
                                 : absl::InvalidArgumentError(FormatConfigErrors(file.errors));
  if (!valid.ok()) {
    PrintError(valid);
    return kExitContent;
  }
  std::string job_id = flags.id;
  if (file.jobs.size() > 1) {
    std::random_device random;
    if (job_id.empty()) job_id = MakeTeamId(file.jobs, (uint64_t{random()} << 32) | random());
    const absl::Status good = CheckTeamIds(file.jobs, job_id);
    if (!good.ok()) {
      PrintError(good);
      return kExitCommandLine;
    }
  }
  return WithSession(connection, [&](const Session& session) {
    const std::vector<job::v1::SubmitRequest> requests =
        MakeRequests(flags, job_id, *text, file.jobs, session.target().address);
    if (flags.dry_run) return DryRun(session, requests);
    std::vector<std::string> ids;
    const int code = Send(session, requests, ids);
    if (code != kExitDone) return code;
    for (const std::string& id : ids) Write(id + "\n");
    if (flags.wait || flags.follow) return Follow(session, flags, ids);
    for (const std::string& id : ids) {
      std::fprintf(stderr, "next: freshet watch %s\n", id.c_str());
    }
    return static_cast<int>(kExitDone);
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
  submit.AddFlag("-f,--follow", flags.follow,
                 "follow the job to its end; several policies one after another");
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
