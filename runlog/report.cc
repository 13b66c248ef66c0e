#include "runlog/report.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "runlog/job_facts.h"
#include "runlog/metrics_log.h"
#include "runlog/page/page_files.h"
#include "runlog/samples_log.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFirstSamples = 5;
constexpr size_t kLastSamples = 8;

Json Nullable(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); }

// The keys of the status page's API (controller/status_page/status_json.h).
std::string RunJson(const JobFacts& job, const MetricsHistory& surviving,
                    const SampleExcerpt& excerpt) {
  const Json facts = {{"name", job.name},
                      {"steps", Nullable(job.steps)},
                      {"staleness_max", Nullable(job.staleness_max)},
                      {"staleness_policy", job.staleness_policy},
                      {"group_size", Nullable(job.group_size)},
                      {"prompts_per_step", Nullable(job.prompts_per_step)},
                      {"yaml", job.yaml}};
  std::vector<std::string> rows;
  for (const StepMetrics& step : surviving.steps) rows.push_back(ToJson(step));
  for (const EvalMetrics& eval : surviving.evals) rows.push_back(ToJson(eval));
  std::vector<std::string> samples;
  for (const SampleRow& row : excerpt.first) samples.push_back(ToShortJson(row));
  for (const SampleRow& row : excerpt.last) samples.push_back(ToShortJson(row));
  return StrCat("{\"job\":", facts.dump(-1, ' ', false, Json::error_handler_t::replace),
                ",\"rows\":[", absl::StrJoin(rows, ","), "],\"samples\":[",
                absl::StrJoin(samples, ","), "]}");
}

// Allows the inline script or style `text`, and no other, in a Content-Security-Policy.
std::string HashSource(const std::string& text) {
  return StrCat("'sha256-", absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))), "'");
}

std::string Page(const std::string& run_json) {
  const std::string style(PageCss());
  const std::string script = StrCat(PageJs(), ReportJs());
  return absl::StrReplaceAll(std::string(ReportHtml()),
                             {{"{style-hash}", HashSource(style)},
                              {"{script-hash}", HashSource(script)},
                              {"{style}", style},
                              {"{script}", script},
                              // Neither "</script>" nor "<!--" may end or change the element. In
                              // JSON '<' is only in strings.
                              {"{run}", absl::StrReplaceAll(run_json, {{"<", "\\u003c"}})}});
}

}  // namespace

absl::Status WriteReport(const std::string& run_dir) {
  const absl::StatusOr<JobFacts> job = ReadJobFacts(run_dir + "/job.yaml");
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  const absl::StatusOr<MetricsHistory> metrics = ReadMetrics(run_dir + "/metrics.jsonl");
  if (!metrics.ok() && !absl::IsNotFound(metrics.status())) return metrics.status();
  if (!job.ok() && !metrics.ok()) {
    return NotFound(run_dir, ": is no run folder: neither job.yaml nor metrics.jsonl is in it");
  }
  const absl::StatusOr<SampleExcerpt> samples =
      ReadSampleExcerpt(run_dir + "/samples.jsonl", kFirstSamples, kLastSamples);
  if (!samples.ok() && !absl::IsNotFound(samples.status())) return samples.status();
  return WriteFileAtomically(
      run_dir + "/report.html",
      Page(RunJson(job.ok() ? *job : JobFacts(),
                   metrics.ok() ? SurvivingMetrics(*metrics) : MetricsHistory(),
                   samples.ok() ? *samples : SampleExcerpt())));
}

}  // namespace freshet
