#include "runlog/display.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace freshet {
namespace {

// Number of recent steps used by the sparkline and the time estimate.
constexpr size_t kRecentSteps = 20;

// Clears to the end of the line.
constexpr const char* kClearToEnd = "\x1b[K";

void PushBounded(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kRecentSteps) values.pop_front();
}

}  // namespace

Display::Display(const DisplayOptions& options, Sink sink)
    : sink_(std::move(sink)), options_(options) {}

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

StepView Display::View(const StepMetrics& metrics) {
  PushBounded(rewards_, metrics.reward_mean);
  PushBounded(seconds_, metrics.step_seconds);
  StepView view;
  view.metrics = metrics;
  view.total_steps = options_.total_steps;
  view.staleness_bound = options_.staleness_bound;
  view.rollout_engines = options_.rollout_engines;
  view.recent_rewards.assign(rewards_.begin(), rewards_.end());
  const double mean =
      std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / static_cast<double>(seconds_.size());
  view.seconds_left =
      mean * static_cast<double>(std::max<int64_t>(0, options_.total_steps - metrics.step));
  return view;
}

void Display::ShowStep(const StepMetrics& metrics) {
  const MutexLock lock(mu_);
  const StepView view = View(metrics);
  FollowWidth();
  if (options_.terminal) {
    WriteLive(FormatLiveStep(view, Style()));
  } else {
    WriteLines(FormatPlainStep(view) + "\n");
  }
}

void Display::ShowEval(const EvalMetrics& metrics) {
  const MutexLock lock(mu_);
  EvalView view;
  view.metrics = metrics;
  const auto [first, added] = first_accuracy_.try_emplace(metrics.eval_name, metrics.eval_accuracy);
  if (!added) view.first_accuracy = first->second;
  WriteLines(FormatEval(view, Style()) + "\n");
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
