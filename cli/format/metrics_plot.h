#ifndef FRESHET_CLI_FORMAT_METRICS_PLOT_H_
#define FRESHET_CLI_FORMAT_METRICS_PLOT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

struct PlotOptions {
  int width = 80;      // columns, labels included
  int height = 12;     // lines of the plot itself
  bool ascii = false;  // '*' instead of braille dots
};

// (x, y) in the order of x.
using Series = std::vector<std::pair<double, double>>;

// A line plot as text: a title, `height` lines with the range of y at their left, and the range of
// x below. Values that are not finite are left out. Pure.
std::string PlotSeries(std::string_view title, const Series& series, const PlotOptions& options);

// The values of one key over rows of metrics.jsonl, x being the step or, for a row of an
// evaluation, its version. A dot reaches into an object ("reward_components.exact"); "reward"
// stands for "reward_mean", "staleness" for "staleness_mean", "eval" for "eval_accuracy". Rows are
// expected to be those that survive. NOT_FOUND naming the keys there are, when no row has the key.
absl::StatusOr<Series> SeriesOf(const std::vector<std::string>& rows, std::string_view key);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_METRICS_PLOT_H_
