#ifndef FRESHET_CLI_FORMAT_METRICS_PLOT_H_
#define FRESHET_CLI_FORMAT_METRICS_PLOT_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

struct PlotOptions {
  int width = 80;      // columns, including labels
  int height = 12;     // lines of the plot itself
  bool ascii = false;  // '*' instead of braille dots
};

// (x, y), ordered by x.
using Series = std::vector<std::pair<double, double>>;

// A line plot as text: a title, `height` lines with the range of y on the left, and the range of x
// below. Non-finite values are skipped. Pure.
std::string PlotSeries(std::string_view title, const Series& series, const PlotOptions& options);

// The values of one key over rows of metrics.jsonl: of steps, as "", or if they do not have the
// key, of evaluations, by name. x is the step or, for an evaluation, its version. A dot selects a
// member of an object ("reward_components.exact"); "reward" is short for "reward_mean", "staleness"
// for "staleness_mean", "eval" for "eval_accuracy". `rows` should be surviving rows only. NOT_FOUND
// listing the available keys if no row has the key.
absl::StatusOr<std::map<std::string, Series>> SeriesOf(const std::vector<std::string>& rows,
                                                       std::string_view key);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_METRICS_PLOT_H_
