#include "runlog/report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "runlog/display_format.h"
#include "runlog/report_charts.h"
#include "runlog/report_style.h"
#include "runlog/svg_chart.h"
#include "runlog/xml_text.h"

namespace freshet {
namespace {

constexpr size_t kFirstSamples = 5;
constexpr size_t kLastSamples = 8;
// Longer completions are truncated in the page.
constexpr size_t kMaxTextBytes = 2000;

constexpr const char* kArrow = " \u2192 ";

std::string Fixed3(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3f", value) : "-";
}

std::string Tile(std::string_view name, std::string_view value, std::string_view more) {
  return StrCat("<li><span class=\"name\">", EscapeXml(name), "</span><span class=\"value\">",
                EscapeXml(value), "</span><span class=\"more\">", EscapeXml(more),
                "</span></li>\n");
}

// Mean over the first or last few steps, because single steps are noisy.
double RewardNear(const std::vector<StepMetrics>& steps, bool first) {
  const size_t count = std::min<size_t>(5, steps.size());
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += steps[first ? i : steps.size() - 1 - i].reward_mean;
  }
  return sum / static_cast<double>(count);
}

std::string EvaluationTiles(const std::vector<EvalMetrics>& evals) {
  std::map<std::string, std::pair<const EvalMetrics*, const EvalMetrics*>> ends;
  for (const EvalMetrics& eval : evals) {
    auto& [first, last] = ends[eval.eval_name];
    if (first == nullptr) first = &eval;
    last = &eval;
  }
  std::string out;
  for (const auto& [name, pair] : ends) {
    const auto& [first, last] = pair;
    out += Tile("evaluation " + name,
                Fixed3(first->eval_accuracy) + kArrow + Fixed3(last->eval_accuracy),
                StrCat("version ", first->policy_version, " to ", last->policy_version,
                       last->rows > 0 ? StrCat(", ", last->rows, " rows") : ""));
  }
  return out;
}

std::string StepTiles(const ReportInput& input) {
  const std::vector<StepMetrics>& steps = input.surviving.steps;
  if (steps.empty()) return "";
  int64_t max_staleness = 0;
  int64_t trained = 0;
  int64_t generated = 0;
  int64_t dropped = 0;
  int64_t filtered = 0;
  double seconds = 0;
  std::set<int64_t> lineages;
  for (const StepMetrics& step : steps) {
    max_staleness = std::max(max_staleness, step.staleness_max);
    trained += step.tokens_trained;
    generated += step.tokens_generated;
    dropped += step.groups_dropped;
    filtered += step.groups_filtered;
    if (std::isfinite(step.step_seconds)) seconds += step.step_seconds;
    lineages.insert(step.lineage);
  }
  const auto rate = [&](int64_t tokens) {
    return HumanCount(seconds > 0 ? static_cast<double>(tokens) / seconds : NAN);
  };
  const double wall = steps.back().wall_seconds;
  return Tile("reward", Fixed3(RewardNear(steps, true)) + kArrow + Fixed3(RewardNear(steps, false)),
              "mean of the first and last 5 steps") +
         Tile("steps",
              input.job.steps ? StrCat(steps.back().step, " of ", *input.job.steps)
                              : StrCat(steps.back().step),
              StrCat(HumanSeconds(wall), " of wall time")) +
         Tile("staleness", StrCat("at most ", max_staleness),
              input.job.staleness_max ? StrCat("bound ", *input.job.staleness_max, ", policy ",
                                               input.job.staleness_policy)
                                      : "") +
         Tile("trained", HumanCount(static_cast<double>(trained)) + " tokens",
              StrCat(rate(trained), " per second; ", rate(generated), " generated")) +
         Tile("groups lost", StrCat(dropped), StrCat("dropped; ", filtered, " filtered")) +
         (lineages.size() > 1 ? Tile("lineages", StrCat(lineages.size()), "the run was resumed")
                              : "");
}

std::string EvaluationTable(const std::vector<EvalMetrics>& evals) {
  if (evals.empty()) return "";
  std::string out =
      "<h2>Evaluations</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>name</th>"
      "<th class=\"num\">version</th><th class=\"num\">accuracy</th><th class=\"num\">rows</th>"
      "<th class=\"num\">at</th></tr></thead>\n<tbody>\n";
  for (const EvalMetrics& eval : evals) {
    out += StrCat("<tr><td>", EscapeXml(eval.eval_name), "</td><td class=\"num\">",
                  eval.policy_version, "</td><td class=\"num\">", Fixed3(eval.eval_accuracy),
                  "</td><td class=\"num\">") +
           StrCat(eval.rows - eval.eval_failed_rows,
                  eval.eval_failed_rows > 0 ? StrCat(" of ", eval.rows) : "",
                  "</td><td class=\"num\">", HumanSeconds(eval.wall_seconds), "</td></tr>\n");
  }
  return out + "</tbody></table></div>\n";
}

std::string Shortened(const std::string& text) {
  if (text.size() <= kMaxTextBytes) return text;
  return StrCat(std::string_view(text).substr(0, kMaxTextBytes), " [cut]");
}

std::string SampleTableRow(const SampleRow& row) {
  std::string components;
  for (const auto& [name, value] : row.components) {
    components +=
        (components.empty() ? "" : ", ") + EscapeXml(name) + " " + absl::StrFormat("%.3g", value);
  }
  std::string versions;
  for (const Span& span : row.spans) {
    versions += (versions.empty() ? "" : ", ") + StrCat(span.policy.version);
  }
  return StrCat("<tr><td class=\"num\">", row.step, "</td><td class=\"text\">",
                EscapeXml(Shortened(row.prompt)), "<span class=\"new\">",
                EscapeXml(Shortened(row.completion)), "</span></td><td class=\"num\">",
                Fixed3(row.reward), "</td><td>") +
         StrCat(components, "</td><td class=\"num\">", versions, "</td><td>", EscapeXml(row.finish),
                "</td></tr>\n");
}

std::string SampleTable(const SampleExcerpt& samples) {
  if (samples.first.empty()) return "";
  std::string out =
      "<h2>Samples</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th class=\"num\">step</th>"
      "<th>prompt and completion</th><th class=\"num\">reward</th><th>components</th>"
      "<th class=\"num\">versions</th><th>end</th></tr></thead>\n<tbody>\n";
  for (const SampleRow& row : samples.first) out += SampleTableRow(row);
  if (!samples.last.empty()) {
    out += "<tr class=\"sep\"><td colspan=\"6\">the last ones</td></tr>\n";
  }
  for (const SampleRow& row : samples.last) out += SampleTableRow(row);
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string RenderReport(const ReportInput& input) {
  const std::string name = EscapeXml(input.job.name.empty() ? "run" : input.job.name);
  std::string page = StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n<title>",
      name, " - Freshet</title>\n<style>", kReportStyle, "</style>\n</head>\n<body>\n<main>\n");
  std::string subtitle = "Freshet run report";
  if (input.job.prompts_per_step && input.job.group_size) {
    subtitle += StrCat(": ", *input.job.prompts_per_step, " prompts of ", *input.job.group_size,
                       " samples a step");
  }
  page += StrCat("<header><h1>", name, "</h1><p>", EscapeXml(subtitle), "</p></header>\n");
  const std::string tiles = EvaluationTiles(input.surviving.evals) + StepTiles(input);
  if (!tiles.empty()) page += "<ul class=\"tiles\">\n" + tiles + "</ul>\n";
  page += "<h2>Curves</h2>\n<div class=\"charts\">\n" +
          RenderCharts(input.surviving, input.job.staleness_max) + "</div>\n";
  page += EvaluationTable(input.surviving.evals);
  page += SampleTable(input.samples);
  if (!input.job.yaml.empty()) {
    page += "<h2>Job</h2>\n<details><summary>job.yaml, resolved</summary><pre>" +
            EscapeXml(input.job.yaml) + "</pre></details>\n";
  }
  return page +
         "<footer>Made from metrics.jsonl, samples.jsonl and job.yaml of this folder.</footer>\n"
         "</main>\n</body>\n</html>\n";
}

absl::Status WriteReport(const std::string& run_dir) {
  ReportInput input;
  absl::StatusOr<JobFacts> job = ReadJobFacts(run_dir + "/job.yaml");
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  absl::StatusOr<MetricsHistory> metrics = ReadMetrics(run_dir + "/metrics.jsonl");
  if (!metrics.ok() && !absl::IsNotFound(metrics.status())) return metrics.status();
  if (!job.ok() && !metrics.ok()) {
    return NotFound(run_dir, ": is no run folder: neither job.yaml nor metrics.jsonl is in it");
  }
  if (job.ok()) input.job = *std::move(job);
  if (metrics.ok()) input.surviving = SurvivingMetrics(*metrics);
  absl::StatusOr<SampleExcerpt> samples =
      ReadSampleExcerpt(run_dir + "/samples.jsonl", kFirstSamples, kLastSamples);
  if (!samples.ok() && !absl::IsNotFound(samples.status())) return samples.status();
  if (samples.ok()) input.samples = *std::move(samples);
  return WriteFileAtomically(run_dir + "/report.html", RenderReport(input));
}

}  // namespace freshet
