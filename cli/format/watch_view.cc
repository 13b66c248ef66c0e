#include "cli/format/watch_view.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "base/str_cat.h"
#include "cli/format/job_text.h"
#include "cli/format/paint.h"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using freshet::job::v1::Event;
using freshet::job::v1::Job;

constexpr const char* kClearLine = "\x1b[K";
constexpr const char* kClearBelow = "\x1b[J";

}  // namespace

WatchView::WatchView(const Job& job, const WatchStyle& style)
    : style_(style),
      total_steps_(job.steps()),
      groups_(FormatGroups(job.groups())),
      waits_for_(OneLine(job.waits_for())),
      trend_(job.steps(), job.spec().staleness().max()) {}

std::string WatchView::Apply(const Event& event) {
  if (event.has_metrics_json()) return ApplyMetrics(event.metrics_json());
  return Write(OneLine(FormatEvent(event, total_steps_, style_.time_zone)) + "\n");
}

std::string WatchView::ApplyMetrics(const std::string& json) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(json);
  if (!row.ok())
    return Write("metrics that cannot be read: " + OneLine(Message(row.status())) + "\n");
  if (const auto* eval = std::get_if<EvalMetrics>(&*row)) {
    return Write(FormatEval(trend_.Add(*eval), {style_.width, style_.terminal && style_.color}) +
                 "\n");
  }
  const auto* metrics = std::get_if<StepMetrics>(&*row);
  if (metrics == nullptr) return "";
  has_step_ = true;
  step_ = trend_.Add(*metrics);
  return style_.terminal ? Write("") : Write(FormatPlainStep(step_) + "\n");
}

std::string WatchView::SetJob(const Job& job) {
  groups_ = FormatGroups(job.groups());
  std::string waits_for = OneLine(job.waits_for());
  const bool changed = waits_for != waits_for_;
  waits_for_ = std::move(waits_for);
  if (style_.terminal) return Write("");
  return changed && !waits_for_.empty() ? Write("waits for " + waits_for_ + "\n") : "";
}

std::string WatchView::Note(std::string_view note) { return Write(OneLine(note) + "\n"); }

std::vector<std::string> WatchView::LiveLines() const {
  // Keep the last column free, because a full line would wrap.
  const int columns = std::max(20, style_.width - 1);
  std::vector<std::string> lines;
  if (has_step_) lines.push_back(FormatLiveStep(step_, {columns, style_.color}));
  if (!groups_.empty()) lines.push_back(Paint(Cut(groups_, columns), kPaintDim, style_.color));
  if (!waits_for_.empty()) {
    lines.push_back(Paint(Cut("waits for " + waits_for_, columns), kPaintYellow, style_.color));
  }
  return lines;
}

std::string WatchView::Write(const std::string& lines) {
  if (!style_.terminal) return lines;
  std::string text;
  if (live_lines_ > 0) {
    text += "\r";
    if (live_lines_ > 1) text += StrCat("\x1b[", live_lines_ - 1, "A");
    text += kClearBelow;
  }
  text += lines;
  const std::vector<std::string> live = LiveLines();
  for (size_t i = 0; i < live.size(); ++i) text += (i > 0 ? "\n" : "") + live[i] + kClearLine;
  live_lines_ = live.size();
  return text;
}

std::string WatchView::Finish() {
  if (live_lines_ == 0) return "";
  live_lines_ = 0;
  return "\n";
}

}  // namespace freshet
