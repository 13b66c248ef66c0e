#include "cli/format/metrics_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr int kLabelColumns = 10;

// A grid of dots; `across_` x `down_` of them form one character.
class Canvas {
 public:
  Canvas(int columns, int lines, bool ascii)
      : ascii_(ascii),
        across_(ascii ? 1 : 2),
        down_(ascii ? 1 : 4),
        columns_(columns),
        cells_(static_cast<size_t>(columns * lines), 0) {}

  int width() const { return columns_ * across_; }
  int height() const { return static_cast<int>(cells_.size()) / columns_ * down_; }

  // `y` counts from the bottom.
  void Set(int x, int y) {
    const int row = (height() - 1 - y) / down_;
    const int dot_row = (height() - 1 - y) % down_;
    // Braille numbers dots by column; the lowest row was added later.
    static constexpr uint8_t kDots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[static_cast<size_t>(row * columns_ + x / across_)] |= kDots[dot_row][x % across_];
  }

  std::string Line(int row) const {
    std::string line;
    for (int column = 0; column < columns_; ++column) {
      const uint8_t dots = cells_[static_cast<size_t>(row * columns_ + column)];
      if (ascii_ || dots == 0) {
        line += dots == 0 ? ' ' : '*';
        continue;
      }
      // U+2800 + dots in UTF-8.
      line += '\xe2';
      line += static_cast<char>(0xa0 | (dots >> 6));
      line += static_cast<char>(0x80 | (dots & 0x3f));
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
  }

 private:
  const bool ascii_;
  const int across_;
  const int down_;
  const int columns_;
  std::vector<uint8_t> cells_;
};

std::string Label(double value) { return absl::StrFormat("%*.4g ", kLabelColumns - 2, value); }

int Scaled(double value, double low, double high, int dots) {
  if (!(high > low)) return (dots - 1) / 2;
  const double share = (value - low) / (high - low);
  return std::clamp(static_cast<int>(std::lround(share * (dots - 1))), 0, dots - 1);
}

void DrawLine(Canvas& canvas, int x0, int y0, int x1, int y1) {
  const int length = std::max(std::abs(x1 - x0), std::abs(y1 - y0));
  for (int i = 0; i <= length; ++i) {
    const double share = length == 0 ? 0 : static_cast<double>(i) / length;
    canvas.Set(x0 + static_cast<int>(std::lround(share * (x1 - x0))),
               y0 + static_cast<int>(std::lround(share * (y1 - y0))));
  }
}

std::string_view FullName(std::string_view key) {
  if (key == "reward") return "reward_mean";
  if (key == "staleness") return "staleness_mean";
  if (key == "eval" || key == "accuracy") return "eval_accuracy";
  return key;
}

const Json* Find(const Json& row, std::string_view key) {
  const auto whole = row.find(std::string(key));
  if (whole != row.end()) return &*whole;
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = row.find(std::string(key.substr(0, dot)));
  if (outer == row.end() || !outer->is_object()) return nullptr;
  return Find(*outer, key.substr(dot + 1));
}

}  // namespace

std::string PlotSeries(std::string_view title, const Series& series, const PlotOptions& options) {
  Series points;
  for (const auto& point : series) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) points.push_back(point);
  }
  if (points.empty()) return StrCat(title, ": nothing to plot yet\n");
  const auto [low_at, high_at] =
      std::minmax_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const double low = low_at->second;
  const double high = high_at->second;
  const int lines = std::clamp(options.height, 2, 100);
  const int columns = std::clamp(options.width - kLabelColumns, 10, 400);
  Canvas canvas(columns, lines, options.ascii);
  int last_x = 0;
  int last_y = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const int x =
        Scaled(points[i].first, points.front().first, points.back().first, canvas.width());
    const int y = Scaled(points[i].second, low, high, canvas.height());
    DrawLine(canvas, i == 0 ? x : last_x, i == 0 ? y : last_y, x, y);
    last_x = x;
    last_y = y;
  }
  std::string text = StrCat(title, "  last ", absl::StrFormat("%.4g", points.back().second), "\n");
  const std::string bar = options.ascii ? "|" : "\u2502";
  for (int row = 0; row < lines; ++row) {
    const bool flat = !(high > low);
    const std::string label = row == 0 && !flat           ? Label(high)
                              : row == lines - 1 && !flat ? Label(low)
                              : flat && row == lines / 2  ? Label(low)
                                                          : std::string(kLabelColumns - 1, ' ');
    text += label + bar + canvas.Line(row) + "\n";
  }
  const std::string first = absl::StrFormat("%.6g", points.front().first);
  const std::string last = absl::StrFormat("%.6g", points.back().first);
  const int gap = columns - static_cast<int>(first.size() + last.size());
  text += std::string(kLabelColumns, ' ') + first +
          std::string(static_cast<size_t>(std::max(1, gap)), ' ') + last + "\n";
  return text;
}

absl::StatusOr<std::map<std::string, Series>> SeriesOf(const std::vector<std::string>& rows,
                                                       std::string_view key) {
  const std::string_view name = FullName(key);
  std::map<std::string, Series> plots;
  std::set<std::string> known;
  for (const std::string& text : rows) {
    const Json row = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) continue;
    for (const auto& [other, value] : row.items()) {
      if (value.is_number()) known.insert(other);
    }
    const auto step = row.contains("step") ? row.find("step") : row.find("policy_version");
    const Json* value = Find(row, name);
    if (step == row.end() || !step->is_number() || value == nullptr || !value->is_number())
      continue;
    const auto eval = row.find("eval_name");
    const bool named = eval != row.end() && eval->is_string();
    plots[named ? eval->get<std::string>() : ""].emplace_back(step->get<double>(),
                                                              value->get<double>());
  }
  if (auto steps = plots.extract(""); !steps.empty()) {
    return std::map<std::string, Series>{{"", std::move(steps.mapped())}};
  }
  if (!plots.empty()) return plots;
  return NotFound("no row has a number named \"", name, "\"",
                  known.empty() ? "; the job has not finished a step yet" : "; there are: ",
                  absl::StrJoin(known, ", "));
}

}  // namespace freshet
