#include "cli/format/watch_view.h"

#include <algorithm>
#include <numeric>
#include <optional>
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

constexpr size_t kRecentSteps = 20;
constexpr const char* kClearLine = "\x1b[K";
constexpr const char* kClearBelow = "\x1b[J";

void PushBounded(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kRecentSteps) values.pop_front();
}

// A text without ANSI sequences, cut after `columns` characters.
std::string Cut(const std::string& text, int columns) {
  size_t at = 0;
  for (int column = 0; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (starts && column++ == columns) break;
  }
  return text.substr(0, at);
}

}  // namespace

WatchView::WatchView(const Job& job, const WatchStyle& style)
    : style_(style),
      state_(job.state()),
      reason_(job.reason()),
      total_steps_(job.steps()),
      staleness_bound_(job.spec().staleness().max()),
      groups_(FormatGroups(job.groups())),
      waits_for_(OneLine(job.waits_for())) {}

std::string WatchView::Apply(const Event& event) {
  switch (event.event_case()) {
    case Event::kMetricsJson:
      return ApplyMetrics(event.metrics_json());
    case Event::kState:
      state_ = event.state().state();
      reason_ = OneLine(event.state().reason());
      break;
    case Event::kNotice:
    case Event::EVENT_NOT_SET:
      break;
  }
  return Write(OneLine(FormatEvent(event, total_steps_, style_.time_zone)) + "\n");
}

std::string WatchView::ApplyMetrics(const std::string& json) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(json);
  if (!row.ok())
    return Write("metrics that cannot be read: " + OneLine(Message(row.status())) + "\n");
  if (const auto* eval = std::get_if<EvalMetrics>(&*row)) {
    EvalView view;
    view.metrics = *eval;
    const auto [first, added] = first_accuracy_.try_emplace(eval->eval_name, eval->eval_accuracy);
    if (!added) view.first_accuracy = first->second;
    return Write(FormatEval(view, {style_.width, style_.terminal && style_.color}) + "\n");
  }
  const auto* metrics = std::get_if<StepMetrics>(&*row);
  if (metrics == nullptr) return "";
  PushBounded(rewards_, metrics->reward_mean);
  PushBounded(seconds_, metrics->step_seconds);
  has_step_ = true;
  step_.metrics = *metrics;
  step_.total_steps = total_steps_;
  step_.staleness_bound = staleness_bound_;
  step_.recent_rewards.assign(rewards_.begin(), rewards_.end());
  const double mean =
      std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / static_cast<double>(seconds_.size());
  step_.seconds_left =
      mean * static_cast<double>(std::max<int64_t>(0, total_steps_ - metrics->step));
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
