#include "cli/commands/cluster_view_commands.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/transient.h"
#include "cli/format/cluster_text.h"
#include "cli/format/job_text.h"
#include "job/proto_json.h"

namespace freshet {
namespace {

using job::v1::Cluster;
using job::v1::Job;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kMaxTopJobs = 4;

constexpr const char* kHomeAndClear = "\x1b[H\x1b[J";

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

struct TopFlags {
  double interval_seconds = 1;
  int iterations = 0;  // 0: endless on a terminal, else one
  bool json = false;
};

// Contents of one screen. Remembers a job's newest step when its recent events have none.
class TopModel {
 public:
  absl::StatusOr<std::string> Next(JobClient& client, const DisplayStyle& style) {
    FRESHET_ASSIGN_OR_RETURN(const Cluster cluster, client.GetCluster());
    std::vector<TopJob> jobs;
    std::map<std::string, StepMetrics> last_steps;
    for (const Job& listed : cluster.jobs()) {
      if (jobs.size() == kMaxTopJobs) break;
      const absl::StatusOr<Job> job = client.Get(listed.id());
      TopJob top{job.ok() ? *job : listed, std::nullopt};
      top.last_step = LastStep(top.job);
      const auto known = last_steps_.find(listed.id());
      if (!top.last_step && known != last_steps_.end()) top.last_step = known->second;
      if (top.last_step) last_steps[listed.id()] = *top.last_step;
      jobs.push_back(std::move(top));
    }
    last_steps_ = std::move(last_steps);
    return FormatTop(cluster, jobs, absl::Now(), style);
  }

 private:
  std::map<std::string, StepMetrics> last_steps_;
};

int TopJson(const Session& session) {
  const absl::StatusOr<Cluster> cluster = session.client().GetCluster();
  if (!cluster.ok()) return session.Fail(cluster.status());
  Print(ProtoToJson(*cluster).dump(2) + "\n");
  return kExitDone;
}

int Top(const Session& session, const TopFlags& flags) {
  if (flags.json) return TopJson(session);
  const Terminal terminal = DescribeTerminal();
  const int screens = flags.iterations > 0 ? flags.iterations : terminal.out ? 0 : 1;
  Notification stop;
  const Interrupt interrupt([&](int) {
    stop.Notify();
    session.client().CancelStreams();
  });
  TopModel model;
  absl::Time reached = absl::Now();
  bool any = false;
  for (int shown = 0; screens == 0 || shown < screens;) {
    const int width = terminal.out ? DescribeTerminal().width : 160;
    const absl::StatusOr<std::string> screen =
        model.Next(session.client(), {width, terminal.color});
    if (stop.HasBeenNotified()) break;
    if (screen.ok()) {
      any = true;
      reached = absl::Now();
      Print((terminal.out ? kHomeAndClear : "") + *screen);
      if (++shown == screens) break;
    } else {
      if (!any || !IsTransient(screen.status()) || absl::Now() - reached > kPatience) {
        return session.Fail(screen.status());
      }
      if (terminal.out) Print("connection lost, trying again\n");
    }
    if (stop.WaitFor(absl::Seconds(flags.interval_seconds))) break;
  }
  return kExitDone;
}

struct LogFlags {
  std::string job, role, worker;
  int tail = 200;
  bool follow = false;
  bool json = false;
};

// Prints each line once although a reopened stream repeats some lines. Skips lines of a reopened
// stream from before the first line printed. Not thread-safe.
class LogPrinter {
 public:
  LogPrinter(const Terminal& terminal, bool json)
      : style_{terminal.width, terminal.color}, json_(json), zone_(absl::LocalTimeZone()) {}

  void Take(const job::v1::LogEntry& entry) {
    const absl::Time time = FromTimestamp(entry.time());
    if (!seen_.empty()) {
      const auto seen = seen_.find(entry.worker());
      if (seen != seen_.end() ? time <= seen->second : time < first_) return;
    }
    if (newest_.empty()) first_ = time;
    absl::Time& newest = newest_.try_emplace(entry.worker(), time).first->second;
    newest = std::max(newest, time);
    Print((json_ ? ProtoToJson(entry).dump() : FormatLogEntry(entry, style_, zone_)) + "\n");
  }
  void Reopen() { seen_ = newest_; }

 private:
  const DisplayStyle style_;
  const bool json_;
  const absl::TimeZone zone_;
  std::map<std::string, absl::Time> newest_;
  std::map<std::string, absl::Time> seen_;  // `newest_` at the time the stream was opened
  absl::Time first_ = absl::InfinitePast();
};

int Logs(const Session& session, const LogFlags& flags) {
  job::v1::LogsRequest request;
  request.set_job_id(flags.job);
  request.set_role(flags.role);
  request.set_worker(flags.worker);
  request.set_tail(flags.tail);
  request.set_follow(flags.follow);
  LogPrinter printer(DescribeTerminal(), flags.json);
  Notification stop;
  const Interrupt interrupt([&](int) {
    stop.Notify();
    session.client().CancelStreams();
  });
  Backoff backoff({.initial = absl::Milliseconds(200), .max = absl::Seconds(2)});
  absl::Time reached = absl::Now();
  bool any = false;
  while (true) {
    const absl::Status status = session.client().Logs(request, [&](const auto& entry) {
      any = true;
      reached = absl::Now();
      printer.Take(entry);
      return !stop.HasBeenNotified();
    });
    if (stop.HasBeenNotified()) return kExitDone;
    if (!flags.follow) return status.ok() ? static_cast<int>(kExitDone) : session.Fail(status);
    if (absl::IsDeadlineExceeded(status) || status.ok()) {
      reached = absl::Now();
      backoff.Reset();
    } else if (!any || !absl::IsUnavailable(status) || absl::Now() - reached > kPatience) {
      return session.Fail(status);
    }
    printer.Reopen();
    if (any) request.set_tail(0);
    if (stop.WaitFor(backoff.Next())) return kExitDone;
  }
}

}  // namespace

void AddClusterViewCommands(const Command& app, ConnectionFlags& connection) {
  TopFlags& top_flags = app.Keep<TopFlags>();
  const Command top = app.AddCommand("top", "jobs, pools and workers of the cluster, live");
  top.Add("-n", top_flags.iterations, "number of screens (default: 1 if stdout is not a terminal)")
      .Range(1, 1000000);
  top.Add("--interval", top_flags.interval_seconds, "seconds between two screens")
      .Range(0.1, 3600.0);
  top.AddFlag("--json", top_flags.json, "the cluster as JSON, once");
  OnSession(top, connection, [&](const Session& session) { return Top(session, top_flags); });

  LogFlags& flags = app.Keep<LogFlags>();
  const Command logs = app.AddCommand("logs", "log lines of workers, for one job or all");
  logs.Add("JOB", flags.job, "id of the job; without one, all lines");
  logs.AddFlag("-f,--follow", flags.follow, "follow new lines");
  logs.Add("--role", flags.role, "only this role")
      .OneOf({"controller", "rollout", "reward", "env", "trainer"});
  logs.Add("--worker", flags.worker, "only the worker of this name");
  logs.Add("--tail", flags.tail, "initial lines; 0: all that are kept").Range(0, 1000000);
  logs.AddFlag("--json", flags.json, "entries as JSON lines");
  OnSession(logs, connection, [&](const Session& session) { return Logs(session, flags); });
}

}  // namespace freshet
