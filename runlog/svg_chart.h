#ifndef FRESHET_RUNLOG_SVG_CHART_H_
#define FRESHET_RUNLOG_SVG_CHART_H_

#include <string>
#include <utility>
#include <vector>

namespace freshet {

// Charts as inline SVG in an HTML <figure>. Pure functions; no scripts or external references.
// Colors and fonts come from the page's style sheet by class: `s0`..`s6` for series, `grid`,
// `axis`, `tick`, `label`, `limit`. Non-finite values leave gaps.

struct ChartSpec {
  std::string id;  // unique on the page; letters, digits and dashes
  std::string title;
  std::string description;  // one sentence for readers and screen readers
  std::string x_label;
  std::string y_label;
  bool from_zero = true;  // the vertical axis includes 0
  bool wide = false;      // spans both columns of the page
};

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
  int color = 0;                                  // 0..6
  bool smooth = false;    // draw points faintly and a moving average strongly
  bool dots = false;      // a dot at every point
  bool is_limit = false;  // a dashed bound instead of data
};

struct ChartBar {
  std::string label;
  double value = 0;
  std::string note;  // written above the bar
};

// About `target` round numbers (1, 2 or 5 times a power of ten) that span [low, high]. At least
// two, ascending, for any finite input.
std::vector<double> NiceTicks(double low, double high, int target);
// "0", "0.25", "12k", "3.5M", "2e-05": precise enough for the tick spacing.
std::string FormatTick(double value, double spacing);

std::string LineChart(const ChartSpec& spec, const std::vector<ChartSeries>& series);
// Areas stacked in series order. Series share their x values; missing ones count as 0.
std::string StackedChart(const ChartSpec& spec, const std::vector<ChartSeries>& series);
std::string BarChart(const ChartSpec& spec, const std::vector<ChartBar>& bars);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_SVG_CHART_H_
