#include "runlog/display.h"

#include <algorithm>
#include <utility>

namespace freshet {
namespace {

// Clears to the end of the line.
constexpr const char* kClearToEnd = "\x1b[K";

}  // namespace

Display::Display(const DisplayOptions& options, Sink sink)
    : sink_(std::move(sink)),
      options_(options),
      trend_(options.total_steps, options.staleness_bound, options.rollout_engines) {}

Display::~Display() {
  const MutexLock lock(mu_);
  EndLive();
}

DisplayStyle Display::Style() const {
  // Leave the last column free: a full line would wrap, and \r would return to its second half.
  return {options_.terminal ? std::max(1, options_.width - 1) : options_.width,
          options_.terminal && options_.color};
}

void Display::FollowWidth() {
  if (options_.measure_width == nullptr) return;
  const int width = options_.measure_width();
  if (width > 0) options_.width = width;
}

void Display::WriteLive(const std::string& line) {
  live_ = line;
  sink_("\r" + line + kClearToEnd);
}

void Display::WriteLines(const std::string& text) {
  if (live_.empty()) {
    sink_(text);
    return;
  }
  sink_(std::string("\r") + kClearToEnd + text + live_ + kClearToEnd);
}

void Display::EndLive() {
  if (live_.empty()) return;
  sink_("\n");
  live_.clear();
}

void Display::ShowSetup(const SetupView& view) {
  const MutexLock lock(mu_);
  WriteLines(FormatSetup(view, Style()));
}

void Display::ShowWarmup(const WarmupView& view) {
  const MutexLock lock(mu_);
  FollowWidth();
  if (options_.terminal) {
    WriteLive(FormatLiveWarmup(view, Style()));
    if (view.step == view.total_steps) EndLive();
    return;
  }
  const int64_t tenth = std::max<int64_t>(1, view.total_steps / 10);
  if (view.step % tenth == 0 || view.step == view.total_steps) {
    WriteLines(FormatPlainWarmup(view) + "\n");
  }
}

void Display::ShowStep(const StepMetrics& metrics) {
  const MutexLock lock(mu_);
  const StepView view = trend_.Add(metrics);
  FollowWidth();
  if (options_.terminal) {
    WriteLive(FormatLiveStep(view, Style()));
  } else {
    WriteLines(FormatPlainStep(view) + "\n");
  }
}

void Display::ShowEval(const EvalMetrics& metrics) {
  const MutexLock lock(mu_);
  WriteLines(FormatEval(trend_.Add(metrics), Style()) + "\n");
}

void Display::ShowNote(std::string_view note) {
  const MutexLock lock(mu_);
  WriteLines(std::string(note) + "\n");
}

void Display::ShowSummary(const SummaryView& view) {
  const MutexLock lock(mu_);
  EndLive();
  WriteLines(FormatSummary(view, Style()));
}

}  // namespace freshet
