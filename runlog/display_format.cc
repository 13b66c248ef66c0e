#include "runlog/display_format.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kMaxColumns = 120;

// Number of recent steps used by the sparkline and the time estimate.
constexpr size_t kRecentSteps = 20;

void PushBounded(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kRecentSteps) values.pop_front();
}

std::string Fixed3(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3f", value) : "-";
}

std::string Percent(double part, double whole) {
  if (!(whole > 0) || !std::isfinite(part)) return "-";
  return absl::StrFormat("%.0f%%", std::clamp(100 * part / whole, 0.0, 100.0));
}

std::string Rate(int64_t tokens, double seconds) {
  return seconds > 0 ? HumanCount(static_cast<double>(tokens) / seconds) : "-";
}

// A number without a trailing ".0".
std::string Short(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3g", value) : "-";
}

// Part of a line; segments with the highest rank are omitted first.
struct Segment {
  int rank;
  std::string text;
};

std::string Joined(const std::vector<Segment>& segments, std::string_view gap) {
  std::string line;
  for (const Segment& segment : segments) {
    if (!line.empty()) line += gap;
    line += segment.text;
  }
  return line;
}

// Omits segments until the line fits. The last remaining one is truncated and loses its colors.
std::string Fit(std::vector<Segment> segments, int columns, std::string_view gap = "  ") {
  while (segments.size() > 1 && Columns(Joined(segments, gap)) > columns) {
    segments.erase(
        std::max_element(segments.begin(), segments.end(),
                         [](const Segment& a, const Segment& b) { return a.rank < b.rank; }));
  }
  std::string line = Joined(segments, gap);
  if (Columns(line) <= columns) return line;
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    while (i < line.size() && line[i] != 'm') ++i;
  }
  return Cut(plain, columns);
}

// "  name        value", with the value wrapped and indented.
void AddField(std::string& text, std::string_view name, std::string_view value,
              const DisplayStyle& style) {
  if (value.empty()) return;
  constexpr int kIndent = 14;
  std::string label = "  " + std::string(name);
  label.resize(kIndent, ' ');
  text += Paint(label, kPaintDim, style.color);
  const int room = std::max(20, std::min(style.width, kMaxColumns) - kIndent);
  int column = 0;
  while (!value.empty()) {
    const size_t blank = value.find(' ');
    const std::string_view word = value.substr(0, blank);
    value.remove_prefix(blank == std::string_view::npos ? value.size() : blank + 1);
    const int length = Columns(word);
    if (column > 0 && column + 1 + length > room) {
      text += "\n" + std::string(kIndent, ' ');
      column = 0;
    }
    if (column > 0) {
      text += ' ';
      ++column;
    }
    text += word;
    column += length;
  }
  text += '\n';
}

// Median and maximum, with the bound.
std::string StalenessText(const StepView& view, std::string_view against) {
  return StrCat(Short(view.metrics.staleness_p50), "/", view.metrics.staleness_max, against,
                view.staleness_bound);
}

// Space for the parts of a live line. The first layout that fits is used.
struct LiveLayout {
  size_t sparkline;
  const char* gap;
  int bar;
  bool time_left;
  bool words;  // label tokens per second and the staleness bound
};
constexpr LiveLayout kLiveLayouts[] = {
    {20, "  ", 16, true, true}, {20, "  ", 8, true, true},   {20, "  ", 8, false, true},
    {16, "  ", 6, false, true}, {16, "  ", 6, false, false}, {10, "  ", 4, false, false},
    {8, " ", 4, false, false},  {6, " ", 3, false, false},
};

std::vector<Segment> LiveSegments(const StepView& view, const LiveLayout& layout, bool color) {
  const StepMetrics& m = view.metrics;
  const double done = view.total_steps > 0
                          ? static_cast<double>(m.step) / static_cast<double>(view.total_steps)
                          : 0;
  const bool over_bound = m.staleness_max > view.staleness_bound;
  const std::string staleness = StalenessText(view, layout.words ? " of " : "\u2264");
  const std::string generated = Rate(m.tokens_generated, m.step_seconds);
  const std::string trained = Rate(m.tokens_trained, m.step_seconds);
  std::vector<Segment> segments = {
      {6, Paint(ProgressBar(done, layout.bar), kPaintCyan, color)},
      {0, absl::StrFormat("%*d/%d", Columns(StrCat(view.total_steps)), m.step, view.total_steps)},
      {1, Paint("reward ", kPaintDim, color) + Paint(Fixed3(m.reward_mean), kPaintBold, color)},
      {5, Paint(Sparkline(view.recent_rewards, layout.sparkline), kPaintGreen, color)},
      {2, Paint("stale ", kPaintDim, color) +
              (over_bound ? Paint(staleness, kPaintYellow, color) : staleness)},
      {3,
       Paint("tok/s ", kPaintDim, color) +
           (layout.words ? generated + " gen " + trained + " train" : generated + "/" + trained)},
      {4, Paint("wait ", kPaintDim, color) + Percent(m.trainer_wait_seconds, m.step_seconds) +
              Paint(" idle ", kPaintDim, color) +
              Percent(m.rollout_idle_seconds,
                      m.step_seconds * static_cast<double>(view.rollout_engines))},
  };
  if (layout.time_left && view.seconds_left > 0) {
    segments.push_back({7, Paint(HumanSeconds(view.seconds_left) + " left", kPaintDim, color)});
  }
  return segments;
}

}  // namespace

StepView RunTrend::Add(const StepMetrics& metrics) {
  PushBounded(rewards_, metrics.reward_mean);
  PushBounded(seconds_, metrics.step_seconds);
  StepView view;
  view.metrics = metrics;
  view.total_steps = total_steps_;
  view.staleness_bound = staleness_bound_;
  view.rollout_engines = rollout_engines_;
  view.recent_rewards.assign(rewards_.begin(), rewards_.end());
  const double mean =
      std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / static_cast<double>(seconds_.size());
  view.seconds_left = mean * static_cast<double>(std::max<int64_t>(0, total_steps_ - metrics.step));
  return view;
}

EvalView RunTrend::Add(const EvalMetrics& metrics) {
  EvalView view;
  view.metrics = metrics;
  const auto [first, added] = first_accuracy_.try_emplace(metrics.eval_name, metrics.eval_accuracy);
  if (!added) view.first_accuracy = first->second;
  return view;
}

std::string Paint(std::string_view text, const char* code, bool color) {
  if (!color || text.empty()) return std::string(text);
  return StrCat("\x1b[", code, "m", text, "\x1b[0m");
}

std::string Cut(std::string_view text, int columns) {
  size_t at = 0;
  for (int column = 0; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (starts && column++ == columns) break;
  }
  return std::string(text.substr(0, at));
}

std::string HumanCount(double value) {
  if (!std::isfinite(value)) return "-";
  constexpr std::pair<double, const char*> kUnits[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, name] : kUnits) {
    // Three significant digits; 999.6 rounds up to the next unit.
    if (std::abs(value) < unit * 0.9995) continue;
    const double scaled = value / unit;
    const int decimals = std::abs(scaled) >= 99.95 ? 0 : std::abs(scaled) >= 9.995 ? 1 : 2;
    return absl::StrFormat("%.*f%s", decimals, scaled, name);
  }
  return absl::StrFormat("%.0f", value);
}

std::string HumanSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 9.95) return absl::StrFormat("%.1fs", seconds);
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e12)));
  if (whole < 60) return absl::StrFormat("%ds", whole);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

std::string Sparkline(const std::vector<double>& values, size_t columns) {
  static constexpr const char* kBars[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
  const size_t begin = values.size() > columns ? values.size() - columns : 0;
  double low = INFINITY;
  double high = -INFINITY;
  for (size_t i = begin; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  std::string line;
  for (size_t i = begin; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      line += ' ';
      continue;
    }
    const double height = high > low ? (values[i] - low) / (high - low) : 0.5;
    line += kBars[std::min<size_t>(7, static_cast<size_t>(height * 8))];
  }
  return line;
}

std::string ProgressBar(double fraction, int columns) {
  const double clamped = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const int filled = static_cast<int>(clamped * columns + 1e-9);
  std::string bar;
  for (int i = 0; i < columns; ++i) bar += i < filled ? "\u2588" : "\u2591";
  return bar;
}

int Columns(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) {
      ++columns;
    }
  }
  return columns;
}

std::string FormatSetup(const SetupView& view, const DisplayStyle& style) {
  std::string text = Paint("freshet", kPaintCyan, style.color) + "  " +
                     Paint(view.job, kPaintBold, style.color) + "\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    AddField(text, name, value, style);
  };
  add("model", view.parameters > 0
                   ? StrCat(view.model, view.model.empty() ? "" : ", ",
                            HumanCount(static_cast<double>(view.parameters)), " parameters")
                   : view.model);
  add("dataset", view.dataset);
  if (view.prompts_per_step > 0) {
    add("batch", StrCat(view.prompts_per_step, " prompts x ", view.group_size, " samples, ",
                        view.steps, " steps"));
  }
  add("staleness",
      view.staleness_bound == 0
          ? std::string("at most 0 versions: synchronous and deterministic")
          : StrCat("at most ", view.staleness_bound, " version",
                   view.staleness_bound == 1 ? "" : "s", ", policy ", view.staleness_policy));
  add("reward", view.reward);
  add("loss", view.loss);
  add("warning", view.warning);
  add("optimizer", view.optimizer);
  add("warm-up", view.warmup);
  add("evaluation", view.evaluation);
  add("threads", view.threads);
  add("checkpoints", view.checkpoints);
  add("resumed", view.resumed);
  add("run", view.run_dir);
  return text;
}

std::string FormatLiveStep(const StepView& view, const DisplayStyle& style) {
  const int columns = std::min(style.width, kMaxColumns);
  std::vector<Segment> segments;
  const char* gap = "";
  for (const LiveLayout& layout : kLiveLayouts) {
    segments = LiveSegments(view, layout, style.color);
    gap = layout.gap;
    if (Columns(Joined(segments, gap)) <= columns) break;
  }
  return Fit(std::move(segments), columns, gap);
}

std::string FormatPlainStep(const StepView& view) {
  const StepMetrics& m = view.metrics;
  return StrCat(
      "step ", m.step, "/", view.total_steps, " reward ", Fixed3(m.reward_mean), " staleness ",
      StalenessText(view, " of "), " generated ", Rate(m.tokens_generated, m.step_seconds),
      " tok/s trained ", Rate(m.tokens_trained, m.step_seconds), " tok/s trainer wait ",
      Percent(m.trainer_wait_seconds, m.step_seconds), " rollout idle ",
      Percent(m.rollout_idle_seconds, m.step_seconds * static_cast<double>(view.rollout_engines)),
      " loss ", Short(m.loss), " ", HumanSeconds(m.wall_seconds));
}

std::string FormatLiveWarmup(const WarmupView& view, const DisplayStyle& style) {
  const double done = view.total_steps > 0
                          ? static_cast<double>(view.step) / static_cast<double>(view.total_steps)
                          : 0;
  return Fit({{3, Paint(ProgressBar(done, 10), kPaintCyan, style.color)},
              {0, StrCat("warm-up ", view.stage, " ", view.step, "/", view.total_steps)},
              {1, Paint("loss ", kPaintDim, style.color) + Fixed3(view.loss)},
              {2, Paint(HumanSeconds(view.seconds), kPaintDim, style.color)}},
             std::min(style.width, kMaxColumns));
}

std::string FormatPlainWarmup(const WarmupView& view) {
  return StrCat("warm-up ", view.stage, " ", view.step, "/", view.total_steps, " loss ",
                Fixed3(view.loss), " ", HumanSeconds(view.seconds));
}

std::string FormatEval(const EvalView& view, const DisplayStyle& style) {
  const EvalMetrics& m = view.metrics;
  std::string line = StrCat("eval ", m.eval_name, " at version ", m.policy_version, ": ",
                            Paint(Fixed3(m.eval_accuracy), kPaintBold, style.color));
  if (m.rows > 0) line += StrCat(" over ", m.rows - m.eval_failed_rows, " rows");
  if (m.samples_per_prompt > 1) line += StrCat(" x ", m.samples_per_prompt, " samples");
  if (m.eval_failed_rows > 0) line += StrCat(" (", m.eval_failed_rows, " more failed)");
  if (m.eval_failed_samples > m.eval_failed_rows * m.samples_per_prompt) {
    line += StrCat(", ", m.eval_failed_samples, " samples failed");
  }
  for (const auto& [k, pass] : m.eval_pass_at) line += StrCat(", pass@", k, " ", Fixed3(pass));
  if (view.first_accuracy) line += StrCat(", first ", Fixed3(*view.first_accuracy));
  return line;
}

std::string FormatSummary(const SummaryView& view, const DisplayStyle& style) {
  std::string text = Paint(view.job, kPaintBold, style.color) + " " + view.outcome +
                     StrCat(" after ", view.steps, " of ", view.total_steps, " steps in ",
                            HumanSeconds(view.wall_seconds), "\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    AddField(text, name, value, style);
  };
  for (const SummaryView::Evaluation& eval : view.evaluations) {
    add("evaluation", StrCat(eval.name, " ", Fixed3(eval.before), " -> ",
                             Paint(Fixed3(eval.after), kPaintGreen, style.color), " (version ",
                             eval.before_version, " -> ", eval.after_version, ")"));
  }
  if (view.steps > 0) {
    add("reward", StrCat(Fixed3(view.reward_first), " -> ", Fixed3(view.reward_last)));
    add("staleness", StrCat("at most ", view.staleness_max, " (bound ", view.staleness_bound, "), ",
                            view.groups_dropped, " groups dropped"));
    const int64_t tokens = view.generates ? view.tokens_generated : view.tokens_trained;
    add(view.generates ? "generated" : "trained",
        StrCat(HumanCount(static_cast<double>(tokens)), " tokens"));
  }
  add("results", view.run_dir);
  if (!view.report.empty()) add("report", view.run_dir + "/" + view.report);
  if (!view.checkpoint.empty()) add("checkpoint", view.run_dir + "/" + view.checkpoint);
  if (!view.resume_command.empty()) add("resume with", view.resume_command);
  return text;
}

}  // namespace freshet
