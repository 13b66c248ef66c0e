#include "cli/commands/query_commands.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "cli/client/job_events.h"
#include "cli/format/job_text.h"
#include "cli/format/metrics_plot.h"
#include "cli/format/output_format.h"
#include "cli/format/text_table.h"
#include "runlog/metrics_log.h"

namespace freshet {
namespace {

constexpr size_t kMaxListed = 10000;

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

int Get(const Session& session, const std::string& id, OutputFormat format) {
  const absl::StatusOr<job::v1::Job> job = session.client().Get(id);
  if (!job.ok()) return session.Fail(job.status());
  Print(FormatJob(*job, format, absl::Now()));
  return kExitDone;
}

int List(const Session& session, const std::vector<job::v1::JobState>& states,
         OutputFormat format) {
  const absl::StatusOr<std::vector<job::v1::Job>> jobs = session.client().List(states, kMaxListed);
  if (!jobs.ok()) return session.Fail(jobs.status());
  Print(FormatJobs(*jobs, format, absl::Now()));
  if (jobs->empty() && (format == OutputFormat::kTable || format == OutputFormat::kWide)) {
    std::fprintf(stderr, "no job%s; next: freshet submit JOB.yaml\n",
                 states.empty() ? "" : " in this state");
  }
  return kExitDone;
}

int Describe(const Session& session, const std::string& id) {
  const absl::StatusOr<job::v1::Job> job = session.client().Get(id);
  if (!job.ok()) return session.Fail(job.status());
  const Terminal terminal = DescribeTerminal();
  Print(DescribeJob(*job, absl::Now(), {terminal.width, terminal.color}));
  return kExitDone;
}

int Samples(const Session& session, const std::string& id, int count, bool json) {
  const absl::StatusOr<job::v1::ListSamplesReply> reply = session.client().ListSamples(id, count);
  if (!reply.ok()) return session.Fail(reply.status());
  const Terminal terminal = DescribeTerminal();
  for (const std::string& row : reply->samples_json()) {
    if (json) {
      Print(row + "\n");
      continue;
    }
    const absl::StatusOr<std::string> text = FormatSample(row, {terminal.width, terminal.color});
    Print(text.ok() ? *text + "\n" : Message(text.status()) + "\n");
  }
  if (reply->samples_json().empty()) {
    std::fprintf(stderr,
                 "no sample was trained on yet; freshet describe %s shows what the job waits for\n",
                 id.c_str());
  }
  return kExitDone;
}

struct MetricsFlags {
  std::string job;
  std::string plot;
  bool json = false;
  bool ascii = false;
  int height = 12;
  int tail = 20;
};

std::string MetricsTable(const std::vector<StepMetrics>& steps, int tail) {
  TextTable table(
      {"STEP", "REWARD", "STD", "STALE", "KL", "ENTROPY", "LOSS", "GRAD", "WAIT", "SECONDS"});
  const size_t count = std::min(steps.size(), static_cast<size_t>(tail));
  for (size_t i = steps.size() - count; i < steps.size(); ++i) {
    const StepMetrics& m = steps[i];
    table.AddRow({StrCat(m.step), absl::StrFormat("%.3f", m.reward_mean),
                  absl::StrFormat("%.3f", m.reward_std), StrCat(m.staleness_max),
                  absl::StrFormat("%.2e", m.kl_behavior), absl::StrFormat("%.3f", m.entropy),
                  absl::StrFormat("%.2e", m.loss), absl::StrFormat("%.3g", m.grad_norm),
                  absl::StrFormat("%.2f", m.trainer_wait_seconds),
                  absl::StrFormat("%.2f", m.step_seconds)});
  }
  return table.Format();
}

int Metrics(const Session& session, const MetricsFlags& flags) {
  const absl::StatusOr<std::vector<std::string>> rows =
      ReadMetricsRows(session.client(), flags.job);
  if (!rows.ok()) return session.Fail(rows.status());
  if (flags.json) {
    for (const std::string& row : *rows) Print(row + "\n");
    return kExitDone;
  }
  const MetricsHistory history = SurvivingHistory(*rows);
  if (flags.plot.empty()) {
    Print(MetricsTable(history.steps, flags.tail));
    return kExitDone;
  }
  std::vector<std::string> surviving;
  for (const StepMetrics& step : history.steps) surviving.push_back(ToJson(step));
  for (const EvalMetrics& eval : history.evals) surviving.push_back(ToJson(eval));
  const auto plots = SeriesOf(surviving, flags.plot);
  if (!plots.ok()) {
    PrintError(plots.status());
    return kExitCommandLine;
  }
  const Terminal terminal = DescribeTerminal();
  PlotOptions options;
  options.width = std::min(terminal.width, 120);
  options.height = flags.height;
  options.ascii = flags.ascii || (terminal.out && !terminal.utf8);
  for (const auto& [eval, series] : *plots) {
    Print(PlotSeries(StrCat(flags.job, " ", flags.plot, eval.empty() ? "" : " of ", eval), series,
                     options));
  }
  return kExitDone;
}

void AddMetrics(const Command& app, ConnectionFlags& connection) {
  MetricsFlags& flags = app.Keep<MetricsFlags>();
  const Command metrics = app.AddCommand("metrics", "a job's steps as a table, plot or JSON lines");
  metrics.Add("JOB", flags.job, "id of the job").Required();
  const Option plot = metrics.Add("--plot", flags.plot,
                                  "KEY of metrics.jsonl to plot: reward, eval, loss, entropy, ...");
  metrics.AddFlag("--json", flags.json, "the rows of metrics.jsonl").Excludes(plot);
  metrics.AddFlag("--ascii", flags.ascii, "plot with '*' instead of braille dots");
  metrics.Add("--height", flags.height, "lines of the plot").Range(2, 100);
  metrics.Add("-n,--tail", flags.tail, "last rows of the table").Range(1, 100000);
  OnSession(metrics, connection, [&](const Session& session) { return Metrics(session, flags); });
}

}  // namespace

void AddOutputFlag(const Command& command, std::string& format) {
  command.Add("-o,--output", format, "table, wide, json, yaml or name")
      .OneOf({"table", "wide", "json", "yaml", "name"});
}

void AddQueryCommands(const Command& app, ConnectionFlags& connection) {
  std::string& id = app.Keep<std::string>();
  std::string& format = app.Keep<std::string>("table");
  const Command get = app.AddCommand("get", "one job");
  get.Add("JOB", id, "id of the job").Required();
  AddOutputFlag(get, format);
  OnSession(get, connection,
            [&](const Session& session) { return Get(session, id, ParseOutputFormat(format)); });

  std::vector<std::string>& states = app.Keep<std::vector<std::string>>();
  const Command list = app.AddCommand("list", "jobs, newest first");
  list.Add("--state", states,
           "only these states: pending, starting, running, paused, succeeded, failed, cancelled")
      .SplitAtCommas()
      .OneValueEach();
  AddOutputFlag(list, format);
  AddConnectionFlags(list, connection);
  list.OnRun([&] {
    std::vector<job::v1::JobState> wanted;
    for (const std::string& name : states) {
      const absl::StatusOr<job::v1::JobState> state = ParseState(name);
      if (!state.ok()) {
        PrintError(InvalidArgument("--state: ", Message(state.status())));
        return static_cast<int>(kExitCommandLine);
      }
      wanted.push_back(*state);
    }
    return WithSession(connection, [&](const Session& session) {
      return List(session, wanted, ParseOutputFormat(format));
    });
  });

  const Command describe = app.AddCommand("describe", "show a job's details and its last events");
  describe.Add("JOB", id, "id of the job").Required();
  OnSession(describe, connection, [&](const Session& session) { return Describe(session, id); });

  int& count = app.Keep<int>(5);
  bool& json = app.Keep<bool>(false);
  const Command samples =
      app.AddCommand("samples", "show the samples that a job was trained on last");
  samples.Add("JOB", id, "id of the job").Required();
  samples.Add("-n", count, "how many").Range(1, 1000);
  samples.AddFlag("--json", json, "the rows of samples.jsonl");
  OnSession(samples, connection,
            [&](const Session& session) { return Samples(session, id, count, json); });
  AddMetrics(app, connection);
}

}  // namespace freshet
