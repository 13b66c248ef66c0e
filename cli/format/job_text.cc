#include "cli/format/job_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "base/str_cat.h"
#include "cli/format/paint.h"
#include "cli/format/text_table.h"
#include "job/job_kind.h"
#include "job/loss_setup.h"
#include "job/proto_json.h"
#include "nlohmann/json.hpp"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using freshet::job::v1::Event;
using freshet::job::v1::Job;
using freshet::job::v1::JobState;
using Json = nlohmann::ordered_json;

std::string Fixed3(double value) { return absl::StrFormat("%.3f", value); }

std::string Progress(const Job& job) { return StrCat(job.step(), "/", job.steps()); }

std::string Reward(const Job& job) { return job.step() > 0 ? Fixed3(job.reward_mean()) : ""; }

std::string Evaluation(const Job& job) {
  return job.has_eval_accuracy() ? Fixed3(job.eval_accuracy()) : "";
}

std::string DescribeEvaluation(const freshet::job::v1::Evaluation& evaluation) {
  std::string text = StrCat(evaluation.name(), " ", Fixed3(evaluation.accuracy()));
  const std::map<int64_t, double> pass_at(evaluation.pass_at().begin(), evaluation.pass_at().end());
  for (const auto& [k, pass] : pass_at) text += StrCat(", pass@", k, " ", Fixed3(pass));
  if (evaluation.failed_samples() > 0) {
    text += StrCat(", ", evaluation.failed_samples(), " samples failed");
  }
  return StrCat(text, " (version ", evaluation.policy_version(), ")");
}

std::string DescribeRank(const freshet::job::v1::Rank& rank) {
  return StrCat(
      OneLine(rank.state()), rank.step() > 0 ? StrCat(", step ", rank.step()) : "",
      rank.last_collective().empty() ? "" : ", last collective: ", rank.last_collective());
}

std::string Age(const google::protobuf::Timestamp& since, absl::Time now) {
  if (since.seconds() == 0) return "";
  return HumanSeconds(
      absl::ToDoubleSeconds(std::max(now - FromTimestamp(since), absl::ZeroDuration())));
}

// How long the job has been running, or ran.
std::string RunTime(const Job& job, absl::Time now) {
  if (job.started().seconds() == 0) return "";
  return Age(job.started(), job.finished().seconds() != 0 ? FromTimestamp(job.finished()) : now);
}

std::string TableOf(const std::vector<Job>& jobs, bool wide, absl::Time now) {
  std::vector<std::string> headers = {"ID", "STATE", "STEP", "REWARD", "EVAL", "TIME", "AGE"};
  if (wide) {
    for (const char* more : {"NAME", "PRIORITY", "LINEAGE", "REASON"}) headers.push_back(more);
  }
  TextTable table(std::move(headers));
  for (const Job& job : jobs) {
    std::vector<std::string> row = {
        job.id(),        StateName(job.state()), Progress(job),          Reward(job),
        Evaluation(job), RunTime(job, now),      Age(job.created(), now)};
    if (wide) {
      for (const std::string& more :
           {job.name(), StrCat(job.priority()), StrCat(job.lineage()), job.reason()}) {
        row.push_back(more);
      }
    }
    table.AddRow(std::move(row));
  }
  return table.Format();
}

const char* StateColor(JobState state) {
  switch (state) {
    case freshet::job::v1::JOB_STATE_SUCCEEDED:
      return kPaintGreen;
    case freshet::job::v1::JOB_STATE_FAILED:
      return kPaintRed;
    case freshet::job::v1::JOB_STATE_PAUSED:
    case freshet::job::v1::JOB_STATE_CANCELLED:
      return kPaintYellow;
    default:
      return kPaintCyan;
  }
}

// What the rules of which tokens bear how much loss did in a step; "": nothing.
std::string LossRulesText(const StepMetrics& step) {
  std::string text;
  const auto add = [&text](int64_t count, std::string_view what) {
    if (count > 0) text += StrCat(text.empty() ? "; without loss " : ", ", count, " ", what);
  };
  add(step.loss_masked_turns, "turns");
  add(step.loss_masked_samples, "samples");
  add(step.loss_masked_tokens, "tokens");
  if (step.loss_weighted_tokens > 0)
    text += StrCat("; weighted ", step.loss_weighted_tokens, " tokens");
  if (step.samples_not_asked > 0) {
    text += StrCat("; ", step.samples_not_asked, " samples not asked");
  }
  if (step.samples_duplicated > 0) {
    text += StrCat(", replaced by ", step.samples_duplicated, " duplicates");
  }
  return text;
}

std::string MetricsText(const std::string& json, int64_t total_steps) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(json);
  if (!row.ok()) return "metrics that cannot be read: " + Message(row.status());
  if (const auto* step = std::get_if<StepMetrics>(&*row)) {
    return StrCat("step ", step->step, total_steps > 0 ? StrCat("/", total_steps) : "", " reward ",
                  Fixed3(step->reward_mean), " staleness max ", step->staleness_max,
                  LossRulesText(*step));
  }
  if (const auto* eval = std::get_if<EvalMetrics>(&*row)) {
    return FormatEval({*eval, std::nullopt}, {.width = 80, .color = false});
  }
  return "metrics: " + json;
}

std::string Counts(const google::protobuf::Map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [name, count] : sorted) {
    if (count != 0) text += StrCat(text.empty() ? "" : ", ", name, " ", count);
  }
  return text;
}

std::string LocalTime(const google::protobuf::Timestamp& time, absl::TimeZone zone) {
  return absl::FormatTime("%H:%M:%S", FromTimestamp(time), zone);
}

// Indents each line of a text by `margin`.
std::string Indented(std::string_view text, std::string_view margin) {
  std::string result;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    result += StrCat(margin, text.substr(0, end), "\n");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return result;
}

std::string TextAt(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string NumberAt(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number()) return "-";
  return found->is_number_float() ? absl::StrFormat("%.4g", found->get<double>()) : found->dump();
}

// "2 of 4 ready in pool default, which has 1 to 8; trainer waits: ..."
std::string Rollouts(const freshet::job::v1::PoolScale& scale) {
  std::string text = StrCat(scale.ready(), " of ", scale.wanted(), " ready in pool ", scale.pool());
  if (scale.max() == 0) return text;
  std::string reason = scale.reason();
  std::replace(reason.begin(), reason.end(), '_', ' ');
  return StrCat(text, ", which has ", scale.min(), " to ", scale.max(), "; ", reason, ": ",
                OneLine(scale.text()));
}

// The job's loss on one line, and a warning about it; "" for a spec whose loss cannot be resolved
// here.
struct LossText {
  std::string loss;
  std::string warning;
};
LossText DescribeLossOf(const freshet::job::v1::JobSpec& spec) {
  if (Generates(spec)) return {};
  const auto resolved = ResolveJobLoss(spec);
  const auto* loss = std::get_if<LossSpec>(&resolved);
  if (loss == nullptr) return {};
  return {DescribeLoss(*loss), UncorrectedStaleness(*loss, spec.staleness().max()).value_or("")};
}

}  // namespace

absl::StatusOr<JobState> ParseState(std::string_view name) {
  JobState state = freshet::job::v1::JOB_STATE_UNSPECIFIED;
  if (freshet::job::v1::JobState_Parse(
          StrCat("JOB_STATE_", absl::AsciiStrToUpper({name.data(), name.size()})), &state) &&
      state != freshet::job::v1::JOB_STATE_UNSPECIFIED) {
    return state;
  }
  return InvalidArgument("state \"", name,
                         "\" does not exist; use one of pending, starting, running, paused, "
                         "succeeded, failed, cancelled");
}

std::string FormatJobs(const std::vector<Job>& jobs, OutputFormat format, absl::Time now) {
  if (format == OutputFormat::kTable || format == OutputFormat::kWide) {
    return TableOf(jobs, format == OutputFormat::kWide, now);
  }
  Json list = Json::array();
  std::string names;
  for (const Job& job : jobs) {
    names += job.id() + "\n";
    list.push_back(ProtoToJson(job));
  }
  if (format == OutputFormat::kName) return names;
  return format == OutputFormat::kJson ? list.dump(2) + "\n" : JsonToYaml(list);
}

std::string FormatJob(const Job& job, OutputFormat format, absl::Time now) {
  if (format == OutputFormat::kJson) return ProtoToJson(job).dump(2) + "\n";
  if (format == OutputFormat::kYaml) return JsonToYaml(ProtoToJson(job));
  return FormatJobs({job}, format, now);
}

std::string FormatGroups(const google::protobuf::Map<std::string, int64_t>& groups) {
  static constexpr const char* kLife[] = {"queued", "leased",  "generated", "scored",
                                          "ready",  "claimed", "requeued"};
  std::string text;
  for (const char* state : kLife) {
    const auto found = groups.find(state);
    if (found == groups.end()) continue;
    text += StrCat(text.empty() ? "groups: " : ", ", found->second, " ", state);
  }
  return text;
}

std::string FormatEvent(const Event& event, int64_t total_steps, absl::TimeZone time_zone) {
  const std::string time = LocalTime(event.time(), time_zone);
  switch (event.event_case()) {
    case Event::kState:
      return StrCat(time, " state ", StateName(event.state().state()),
                    event.state().reason().empty() ? "" : ": ", event.state().reason());
    case Event::kMetricsJson:
      return StrCat(time, " ", MetricsText(event.metrics_json(), total_steps));
    case Event::kNotice:
      return StrCat(time, " ", event.notice().severity(), " ", event.notice().kind(), ": ",
                    event.notice().text());
    case Event::EVENT_NOT_SET:
      break;
  }
  return time + " an event that this version does not know";
}

std::string DescribeJob(const Job& job, absl::Time now, const DisplayStyle& style) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  std::string text;
  const auto line = [&](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    std::string label(name);
    label.resize(12, ' ');
    text += StrCat(Paint(label, kPaintDim, style.color), value, "\n");
  };
  const auto time = [&](const google::protobuf::Timestamp& at) {
    return at.seconds() == 0 ? std::string()
                             : absl::FormatTime("%Y-%m-%d %H:%M:%S %Z", FromTimestamp(at), zone);
  };
  line("job", Paint(job.id(), kPaintBold, style.color));
  line("name", job.name());
  line("state", StrCat(Paint(StateName(job.state()), StateColor(job.state()), style.color),
                       job.reason().empty() ? "" : ": ", job.reason()));
  line("waits for", job.waits_for());
  const LossText loss = DescribeLossOf(job.spec());
  line("warning", loss.warning);
  line("loss", loss.loss);
  line("rollouts", job.has_rollouts() ? Rollouts(job.rollouts()) : "");
  line("step",
       StrCat(Progress(job), job.lineage() > 0 ? StrCat(" (lineage ", job.lineage(), ")") : ""));
  line("reward", Reward(job));
  if (job.evaluations().empty()) line("evaluation", Evaluation(job));
  for (const auto& evaluation : job.evaluations())
    line("evaluation", DescribeEvaluation(evaluation));
  line("priority", job.priority() != 0 ? StrCat(job.priority()) : "");
  line("created", time(job.created()));
  line("started", time(job.started()));
  line("finished", time(job.finished()));
  line("time", RunTime(job, now));
  line("kept until", time(job.expires()));
  const std::string groups = FormatGroups(job.groups());
  line("groups", groups.empty() ? "" : groups.substr(std::string_view("groups: ").size()));
  line("ended", Counts(job.ended()));
  line("curated", Counts(job.curated()));
  for (const auto& rank : job.ranks()) line(StrCat("rank ", rank.rank()), DescribeRank(rank));
  if (job.dead_groups_size() > 0) text += Paint("died last", kPaintDim, style.color) + "\n";
  for (const freshet::job::v1::DeadGroup& dead : job.dead_groups()) {
    text += StrCat("  ", LocalTime(dead.time(), zone), " prompt ", dead.prompt(), ", attempt ",
                   dead.attempt(), ": ", OneLine(dead.reason()), "\n");
  }
  if (job.recent_events_size() > 0) text += Paint("events", kPaintDim, style.color) + "\n";
  for (const Event& event : job.recent_events()) {
    text += StrCat("  ", FormatEvent(event, job.steps(), zone), "\n");
  }
  return text;
}

std::string FormatCheckpoints(const freshet::job::v1::ListCheckpointsReply& reply,
                              OutputFormat format) {
  if (format == OutputFormat::kJson || format == OutputFormat::kYaml) {
    const Json list = ProtoToJson(reply)["checkpoints"];
    return format == OutputFormat::kJson ? list.dump(2) + "\n" : JsonToYaml(list);
  }
  TextTable table({"STEP", "LINEAGE", "ACCURACY", "SIZE", "SHA256", "PATH"});
  std::string names;
  for (const freshet::job::v1::CheckpointInfo& info : reply.checkpoints()) {
    names += StrCat(info.version(), "\n");
    const std::string sha = format == OutputFormat::kWide ? info.manifest_sha256()
                                                          : info.manifest_sha256().substr(0, 12);
    table.AddRow({StrCat(info.version()), StrCat(info.lineage()),
                  info.has_accuracy() ? absl::StrFormat("%.3f", info.accuracy()) : "-",
                  HumanCount(static_cast<double>(info.size_bytes())) + "B", sha, info.path()});
  }
  return format == OutputFormat::kName ? names : table.Format();
}

std::string FormatLogEntry(const freshet::job::v1::LogEntry& entry, const DisplayStyle& style,
                           absl::TimeZone time_zone) {
  const char* color = entry.level() == "error"     ? kPaintRed
                      : entry.level() == "warning" ? kPaintYellow
                                                   : kPaintDim;
  return StrCat(
      absl::FormatTime("%H:%M:%E3S", FromTimestamp(entry.time()), time_zone), " ",
      Paint(entry.worker().empty() ? entry.role() : entry.worker(), kPaintCyan, style.color), " ",
      Paint(entry.level(), color, style.color), " ", OneLine(entry.text()));
}

absl::StatusOr<std::string> FormatSample(std::string_view json, const DisplayStyle& style) {
  const Json row = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return InvalidArgument("a sample is not a JSON object");
  std::string text = StrCat(Paint(TextAt(row, "uid"), kPaintBold, style.color), "  step ",
                            NumberAt(row, "step"), "  reward ", NumberAt(row, "reward"));
  const auto components = row.find("components");
  if (components != row.end() && components->is_object()) {
    for (const auto& [name, value] : components->items()) {
      text += StrCat("  ", name, " ",
                     value.is_number() ? absl::StrFormat("%.4g", value.get<double>()) : "-");
    }
  }
  text += StrCat("  ", NumberAt(row, "tokens"), " tokens  ", TextAt(row, "finish"), "\n");
  text += Paint("  prompt\n", kPaintDim, style.color);
  text += Indented(Printable(TextAt(row, "prompt")), "    ");
  text += Paint("  completion\n", kPaintDim, style.color);
  text += Indented(Printable(TextAt(row, "completion")), "    ");
  return text;
}

}  // namespace freshet
