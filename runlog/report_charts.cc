#include "runlog/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/str_cat.h"
#include "runlog/svg_chart.h"

namespace freshet {
namespace {

constexpr int kColors = 7;

using Value = std::function<double(const StepMetrics&)>;

ChartSeries Series(const MetricsHistory& history, std::string name, int color, const Value& value) {
  ChartSeries series;
  series.name = std::move(name);
  series.color = color;
  for (const StepMetrics& step : history.steps) {
    series.points.emplace_back(static_cast<double>(step.step), value(step));
  }
  return series;
}

ChartSeries Smooth(ChartSeries series) {
  series.smooth = true;
  return series;
}

ChartSpec Spec(std::string id, std::string title, std::string description, std::string y_label) {
  ChartSpec spec;
  spec.id = std::move(id);
  spec.title = std::move(title);
  spec.description = std::move(description);
  spec.x_label = "step";
  spec.y_label = std::move(y_label);
  return spec;
}

// A single component of weight 1 is the total.
bool IsTotal(const MetricsHistory& history, const std::string& component) {
  return std::all_of(history.steps.begin(), history.steps.end(), [&](const StepMetrics& step) {
    const auto found = step.reward_components.find(component);
    return found != step.reward_components.end() &&
           std::abs(found->second - step.reward_mean) <= 1e-9;
  });
}

std::string RewardChart(const MetricsHistory& history) {
  std::vector<ChartSeries> series = {Smooth(
      Series(history, "total", 0, [](const StepMetrics& step) { return step.reward_mean; }))};
  std::set<std::string> components;
  for (const StepMetrics& step : history.steps) {
    for (const auto& [name, value] : step.reward_components) components.insert(name);
  }
  int color = 1;
  for (const std::string& name : components) {
    if (components.size() == 1 && IsTotal(history, name)) {
      series.front().name = name;
      break;
    }
    series.push_back(
        Smooth(Series(history, name, std::min(color++, kColors - 1), [&](const StepMetrics& s) {
          const auto found = s.reward_components.find(name);
          return found == s.reward_components.end() ? NAN : found->second;
        })));
  }
  return LineChart(Spec("reward", "Reward",
                        "Mean over the samples of each step: the weighted total, and the "
                        "unweighted value of each component.",
                        "reward"),
                   series);
}

std::string EvaluationChart(const MetricsHistory& history) {
  std::map<std::string, ChartSeries> by_name;
  for (const EvalMetrics& eval : history.evals) {
    const auto color = static_cast<int>(by_name.size()) % kColors;
    const auto [place, added] = by_name.try_emplace(eval.eval_name);
    ChartSeries& series = place->second;
    if (added) {
      series.name = eval.eval_name;
      series.color = color;
      series.dots = true;
    }
    series.points.emplace_back(static_cast<double>(eval.policy_version), eval.eval_accuracy);
  }
  std::vector<ChartSeries> series;
  for (auto& [name, one] : by_name) series.push_back(std::move(one));
  ChartSpec spec =
      Spec("evaluation", "Evaluation", "On held-out rows, at a pinned policy version.", "accuracy");
  spec.x_label = "policy version";
  return LineChart(spec, series);
}

std::string StalenessHistogram(const MetricsHistory& history, std::optional<int64_t> bound) {
  std::map<int64_t, double> tokens;
  // One bar for every age up to the bound, even without tokens.
  for (int64_t age = 0; age <= std::min<int64_t>(bound.value_or(0), 32); ++age) tokens[age] = 0;
  double total = 0;
  for (const StepMetrics& step : history.steps) {
    for (const auto& [age, count] : step.staleness_tokens) {
      tokens[age] += static_cast<double>(count);
      total += static_cast<double>(count);
    }
  }
  std::vector<ChartBar> bars;
  for (const auto& [age, count] : tokens) {
    if (total <= 0) break;
    bars.push_back(
        {std::to_string(age), count / total * 100, absl::StrFormat("%.1f%%", count / total * 100)});
  }
  ChartSpec spec =
      Spec("staleness", "Staleness of trained tokens",
           bound ? StrCat("Share of all trained tokens by their age; the bound is ", *bound, ".")
                 : "Share of all trained tokens by their age.",
           "% of tokens");
  spec.x_label = "policy versions between sampling and training";
  return BarChart(spec, bars);
}

std::string StalenessOverTime(const MetricsHistory& history, std::optional<int64_t> bound) {
  std::vector<ChartSeries> series = {
      Series(history, "mean", 0, [](const StepMetrics& step) { return step.staleness_mean; }),
      Series(history, "max", 1,
             [](const StepMetrics& step) { return static_cast<double>(step.staleness_max); })};
  if (bound && !history.steps.empty()) {
    const auto limit = static_cast<double>(*bound);
    series.push_back(Series(history, "bound", 6, [limit](const StepMetrics&) { return limit; }));
    series.back().is_limit = true;
  }
  return LineChart(Spec("staleness-steps", "Staleness by step",
                        "Age in policy versions of the tokens of each step.", "versions"),
                   series);
}

double PerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : NAN;
}

std::string ThroughputChart(const MetricsHistory& history) {
  return LineChart(
      Spec("throughput", "Throughput", "Tokens per second of wall time, by step.", "tokens/s"),
      {Smooth(Series(history, "generated", 0,
                     [](const StepMetrics& step) {
                       return PerSecond(step.tokens_generated, step.step_seconds);
                     })),
       Smooth(Series(history, "trained", 1, [](const StepMetrics& step) {
         return PerSecond(step.tokens_trained, step.step_seconds);
       }))});
}

std::string TimeChart(const MetricsHistory& history) {
  const auto other = [](const StepMetrics& step) {
    return std::max(0.0, step.step_seconds - step.train_seconds - step.trainer_wait_seconds -
                             step.weight_swap_seconds - step.checkpoint_seconds);
  };
  return StackedChart(
      Spec("time", "Where the trainer's time went", "Seconds of each step, by activity.",
           "seconds"),
      {Series(history, "train", 0, [](const StepMetrics& step) { return step.train_seconds; }),
       Series(history, "wait for samples", 1,
              [](const StepMetrics& step) { return step.trainer_wait_seconds; }),
       Series(history, "weight swap", 2,
              [](const StepMetrics& step) { return step.weight_swap_seconds; }),
       Series(history, "checkpoint", 3,
              [](const StepMetrics& step) { return step.checkpoint_seconds; }),
       Series(history, "other", 6, other)});
}

std::string EntropyChart(const MetricsHistory& history) {
  return LineChart(
      Spec("entropy", "Entropy", "Of the policy's next-token distribution.", "nats per token"),
      {Smooth(
          Series(history, "entropy", 2, [](const StepMetrics& step) { return step.entropy; }))});
}

std::string KlChart(const MetricsHistory& history) {
  std::vector<ChartSeries> series = {Smooth(Series(
      history, "to behaviour", 0, [](const StepMetrics& step) { return step.kl_behavior; }))};
  if (std::any_of(history.steps.begin(), history.steps.end(),
                  [](const StepMetrics& step) { return step.kl_ref.has_value(); })) {
    series.push_back(Smooth(Series(history, "to reference", 3, [](const StepMetrics& step) {
      return step.kl_ref.value_or(NAN);
    })));
  }
  return LineChart(
      Spec("kl", "KL divergence", "Of the trained policy to the one that sampled the tokens.",
           "nats per token"),
      series);
}

std::string LengthChart(const MetricsHistory& history) {
  return LineChart(
      Spec("length", "Completion length", "Tokens per completion of each step.", "tokens"),
      {Smooth(Series(history, "mean", 0,
                     [](const StepMetrics& step) { return step.completion_length_mean; })),
       Smooth(Series(history, "95th percentile", 1,
                     [](const StepMetrics& step) { return step.completion_length_p95; })),
       Series(history, "max", 6, [](const StepMetrics& step) {
         return static_cast<double>(step.completion_length_max);
       })});
}

std::string GradientChart(const MetricsHistory& history) {
  return LineChart(Spec("gradient", "Gradient norm", "Before clipping.", "norm"),
                   {Smooth(Series(history, "gradient norm", 3,
                                  [](const StepMetrics& step) { return step.grad_norm; }))});
}

std::string LossChart(const MetricsHistory& history) {
  return LineChart(
      Spec("loss", "Loss", "The surrogate: its gradient matters, not its value.", "loss"),
      {Smooth(Series(history, "loss", 0, [](const StepMetrics& step) { return step.loss; }))});
}

std::string ClipChart(const MetricsHistory& history) {
  return LineChart(Spec("clip", "Clipped tokens",
                        "Share of tokens whose probability ratio was clipped.", "% of tokens"),
                   {Smooth(Series(history, "clipped", 1, [](const StepMetrics& step) {
                     return 100 * step.ratio_clip_fraction;
                   }))});
}

}  // namespace

std::string RenderCharts(const MetricsHistory& surviving, std::optional<int64_t> bound) {
  return StrCat(RewardChart(surviving), EvaluationChart(surviving),
                StalenessHistogram(surviving, bound), StalenessOverTime(surviving, bound),
                ThroughputChart(surviving), TimeChart(surviving)) +
         StrCat(LengthChart(surviving), EntropyChart(surviving), KlChart(surviving),
                GradientChart(surviving), ClipChart(surviving), LossChart(surviving));
}

}  // namespace freshet
