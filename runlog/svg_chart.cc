#include "runlog/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>

#include "absl/strings/str_format.h"
#include "base/str_cat.h"
#include "runlog/xml_text.h"

namespace freshet {
namespace {

// Drawing size in user units; the plot is inside the margins.
constexpr double kWidth = 640;
constexpr double kHeight = 260;
constexpr double kLeft = 64;
constexpr double kRight = 14;
constexpr double kTop = 14;
constexpr double kBottom = 44;
constexpr size_t kMaxPoints = 400;  // more are averaged: the drawing cannot show them
constexpr size_t kMaxTooltips = 400;

// Linear map of data onto the plot.
struct Scale {
  double x_low, x_high, y_low, y_high;
  double X(double x) const {
    return kLeft + (x - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight);
  }
  double Y(double y) const {
    return kHeight - kBottom - (y - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }
};

std::string Coordinate(double value) { return absl::StrFormat("%.1f", value); }

bool Finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// Averages neighbors until at most kMaxPoints are left.
std::vector<std::pair<double, double>> Thinned(const std::vector<std::pair<double, double>>& in) {
  const size_t run = (in.size() + kMaxPoints - 1) / kMaxPoints;
  if (run <= 1) return in;
  std::vector<std::pair<double, double>> out;
  for (size_t begin = 0; begin < in.size(); begin += run) {
    double x = 0;
    double y = 0;
    double count = 0;
    for (size_t i = begin; i < std::min(begin + run, in.size()); ++i) {
      if (!Finite(in[i])) continue;
      x += in[i].first;
      y += in[i].second;
      ++count;
    }
    if (count > 0) out.emplace_back(x / count, y / count);
  }
  return out;
}

// Centered moving average over about a twelfth of the points.
std::vector<std::pair<double, double>> Smoothed(const std::vector<std::pair<double, double>>& in) {
  const auto reach = static_cast<int64_t>(in.size() / 24);
  std::vector<std::pair<double, double>> out;
  for (int64_t i = 0; i < static_cast<int64_t>(in.size()); ++i) {
    // The window shrinks at the ends and stays centered.
    const int64_t half = std::min({reach, i, static_cast<int64_t>(in.size()) - 1 - i});
    double sum = 0;
    double count = 0;
    for (int64_t j = i - half; j <= i + half; ++j) {
      const auto& point = in[static_cast<size_t>(j)];
      if (!Finite(point)) continue;
      sum += point.second;
      ++count;
    }
    out.emplace_back(in[static_cast<size_t>(i)].first,
                     count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

std::string PathData(const std::vector<std::pair<double, double>>& points, const Scale& scale) {
  std::string data;
  bool pen_down = false;
  for (const auto& point : points) {
    if (!Finite(point)) {
      pen_down = false;
      continue;
    }
    data += (pen_down ? "L" : "M") + Coordinate(scale.X(point.first)) + " " +
            Coordinate(scale.Y(point.second));
    pen_down = true;
  }
  return data;
}

std::string Text(double x, double y, std::string_view cls, std::string_view anchor,
                 std::string_view text) {
  return StrCat("<text x=\"", Coordinate(x), "\" y=\"", Coordinate(y), "\" class=\"", cls,
                "\" text-anchor=\"", anchor, "\">", EscapeXml(text), "</text>\n");
}

std::string LineAt(std::string_view cls, double x1, double y1, double x2, double y2) {
  return StrCat("<line class=\"", cls, "\" x1=\"", Coordinate(x1), "\" y1=\"", Coordinate(y1),
                "\" x2=\"", Coordinate(x2), "\" y2=\"", Coordinate(y2), "\"/>\n");
}

std::string VerticalAxis(const ChartSpec& spec, const Scale& scale,
                         const std::vector<double>& ticks) {
  std::string out;
  for (const double tick : ticks) {
    out += LineAt("grid", kLeft, scale.Y(tick), kWidth - kRight, scale.Y(tick));
    out += Text(kLeft - 8, scale.Y(tick) + 4, "tick", "end", FormatTick(tick, ticks[1] - ticks[0]));
  }
  out += StrCat("<text class=\"label\" text-anchor=\"middle\" transform=\"translate(11 ",
                Coordinate((kTop + kHeight - kBottom) / 2), ") rotate(-90)\">",
                EscapeXml(spec.y_label), "</text>\n");
  return out;
}

std::string HorizontalAxis(const ChartSpec& spec, const Scale& scale) {
  const double base = kHeight - kBottom;
  std::string out = LineAt("axis", kLeft, base, kWidth - kRight, base);
  const std::vector<double> ticks = NiceTicks(scale.x_low, scale.x_high, 7);
  for (const double tick : ticks) {
    if (tick < scale.x_low - 1e-9 || tick > scale.x_high + 1e-9) continue;
    out += LineAt("axis", scale.X(tick), base, scale.X(tick), base + 4);
    out += Text(scale.X(tick), base + 17, "tick", "middle", FormatTick(tick, ticks[1] - ticks[0]));
  }
  out += Text((kLeft + kWidth - kRight) / 2, kHeight - 6, "label", "middle", spec.x_label);
  return out;
}

std::string Legend(const std::vector<ChartSeries>& series) {
  if (series.size() < 2) return "";
  std::string out = "<ul class=\"legend\">";
  for (const ChartSeries& one : series) {
    out += StrCat("<li><span class=\"swatch ", one.is_limit ? "dash" : "", " b", one.color,
                  "\"></span>", EscapeXml(one.name), "</li>");
  }
  return out + "</ul>\n";
}

std::string Figure(const ChartSpec& spec, const std::string& legend, const std::string& drawing) {
  return StrCat(
      "<figure", spec.wide ? " class=\"wide\"" : "", ">\n<figcaption><h3>", EscapeXml(spec.title),
      "</h3><p>", EscapeXml(spec.description), "</p></figcaption>\n", legend, "<svg viewBox=\"0 0 ",
      kWidth, " ", kHeight, "\" role=\"img\" aria-labelledby=\"", spec.id, "-t ", spec.id,
      "-d\">\n<title id=\"", spec.id, "-t\">", EscapeXml(spec.title), "</title>\n<desc id=\"",
      spec.id, "-d\">", EscapeXml(spec.description), "</desc>\n", drawing, "</svg>\n</figure>\n");
}

std::string EmptyFigure(const ChartSpec& spec) {
  return Figure(spec, "", Text(kWidth / 2, kHeight / 2, "label", "middle", "no data"));
}

// Range of all finite points, never empty: equal ends are moved apart.
struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  void Widen(double by) {
    if (low == high) {
      low -= by;
      high += by;
    }
  }
};

std::string Tooltips(const ChartSeries& one, const Scale& scale) {
  if (one.points.size() > kMaxTooltips || one.is_limit) return "";
  std::string out;
  for (const auto& point : one.points) {
    if (!Finite(point)) continue;
    out += StrCat("<circle class=\"", one.dots ? "dot f" : "hit f", one.color, "\" cx=\"",
                  Coordinate(scale.X(point.first)), "\" cy=\"", Coordinate(scale.Y(point.second)),
                  "\" r=\"", one.dots ? "3.5" : "5", "\"><title>", EscapeXml(one.name), " at ",
                  absl::StrFormat("%g: %.4g", point.first, point.second), "</title></circle>\n");
  }
  return out;
}

std::string DrawSeries(const ChartSeries& one, const Scale& scale) {
  const auto points = Thinned(one.points);
  const std::string color = StrCat("s", one.color);
  if (one.is_limit) {
    return StrCat("<path class=\"line limit ", color, "\" d=\"", PathData(points, scale), "\"/>\n");
  }
  std::string out;
  const bool smooth = one.smooth && points.size() >= 24;
  if (smooth) {
    out += StrCat("<path class=\"line faint ", color, "\" d=\"", PathData(points, scale), "\"/>\n");
  }
  out += StrCat("<path class=\"line ", color, "\" d=\"",
                PathData(smooth ? Smoothed(points) : points, scale), "\"/>\n");
  return out + Tooltips(one, scale);
}

}  // namespace

std::vector<double> NiceTicks(double low, double high, int target) {
  if (!std::isfinite(low) || !std::isfinite(high) || high < low) return {0, 1};
  // Doubles cannot distinguish ticks closer than a relative 1e-12.
  const double magnitude = std::max(std::abs(low), std::abs(high));
  if (magnitude > 1e300) return {-magnitude / 2, magnitude / 2};
  const double range = std::max(high - low, std::max(magnitude * 1e-12, 1e-300));
  const double raw = range / std::max(1, target);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double spacing = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) {
      spacing = factor * power;
      break;
    }
  }
  const double first = std::floor(low / spacing + 1e-9);
  const double last = std::max(std::ceil(high / spacing - 1e-9), first + 1);
  std::vector<double> ticks;
  for (double i = first; i <= last && ticks.size() < 50; ++i) ticks.push_back(i * spacing);
  return ticks;
}

std::string FormatTick(double value, double spacing) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) < std::abs(spacing) * 1e-6) return "0";
  const double magnitude = std::abs(value);
  if (magnitude < 1e-3 || magnitude >= 1e12) return absl::StrFormat("%.2g", value);
  double unit = 1;
  const char* name = "";
  if (magnitude >= 1e4) {
    unit = magnitude >= 1e9 ? 1e9 : magnitude >= 1e6 ? 1e6 : 1e3;
    name = magnitude >= 1e9 ? "G" : magnitude >= 1e6 ? "M" : "k";
  }
  // Use as many decimals as the spacing has.
  double scaled = std::abs(spacing) / unit;
  int decimals = 0;
  while (decimals < 6 && std::abs(scaled - std::round(scaled)) > scaled * 1e-6) {
    scaled *= 10;
    ++decimals;
  }
  return absl::StrFormat("%.*f%s", decimals, value / unit, name);
}

std::string LineChart(const ChartSpec& spec, const std::vector<ChartSeries>& series) {
  Extent x;
  Extent y;
  for (const ChartSeries& one : series) {
    for (const auto& point : one.points) {
      if (!Finite(point)) continue;
      x.Add(point.first);
      y.Add(point.second);
    }
  }
  if (x.empty()) return EmptyFigure(spec);
  if (spec.from_zero) y.Add(0);
  x.Widen(1);
  y.Widen(y.low == 0 ? 1 : std::abs(y.low) * 0.1);
  const std::vector<double> ticks = NiceTicks(y.low, y.high, 5);
  const Scale scale{x.low, x.high, ticks.front(), ticks.back()};
  std::string drawing = VerticalAxis(spec, scale, ticks) + HorizontalAxis(spec, scale);
  for (const ChartSeries& one : series) drawing += DrawSeries(one, scale);
  return Figure(spec, Legend(series), drawing);
}

std::string StackedChart(const ChartSpec& spec, const std::vector<ChartSeries>& series) {
  std::map<double, double> base;  // x -> height stacked so far
  for (const ChartSeries& one : series) {
    for (const auto& point : Thinned(one.points)) {
      if (Finite(point)) base[point.first] = 0;
    }
  }
  if (base.empty()) return EmptyFigure(spec);
  std::vector<std::map<double, double>> tops;
  for (const ChartSeries& one : series) {
    for (const auto& point : Thinned(one.points)) {
      if (Finite(point)) base[point.first] += std::max(0.0, point.second);
    }
    tops.push_back(base);
  }
  Extent x;
  Extent y;
  y.Add(0);
  for (const auto& [at, height] : base) {
    x.Add(at);
    y.Add(height);
  }
  x.Widen(1);
  y.Widen(1);
  const std::vector<double> ticks = NiceTicks(0, y.high, 5);
  const Scale scale{x.low, x.high, 0, ticks.back()};
  std::string drawing;
  for (size_t i = series.size(); i-- > 0;) {
    // Each area extends to the axis; the ones below are drawn over it.
    const std::vector<std::pair<double, double>> points(tops[i].begin(), tops[i].end());
    drawing += StrCat("<path class=\"area f", series[i].color, "\" d=\"", PathData(points, scale),
                      "L", Coordinate(scale.X(points.back().first)), " ", Coordinate(scale.Y(0)),
                      "L", Coordinate(scale.X(points.front().first)), " ", Coordinate(scale.Y(0)),
                      "Z\"><title>", EscapeXml(series[i].name), "</title></path>\n");
  }
  drawing = VerticalAxis(spec, scale, ticks) + drawing + HorizontalAxis(spec, scale);
  return Figure(spec, Legend(series), drawing);
}

std::string BarChart(const ChartSpec& spec, const std::vector<ChartBar>& bars) {
  Extent y;
  y.Add(0);
  for (const ChartBar& bar : bars) y.Add(bar.value * 1.1);  // room for the notes above
  if (bars.empty()) return EmptyFigure(spec);
  y.Widen(1);
  const std::vector<double> ticks = NiceTicks(0, y.high, 5);
  const Scale scale{0, static_cast<double>(bars.size()), 0, ticks.back()};
  const double base = kHeight - kBottom;
  std::string drawing = VerticalAxis(spec, scale, ticks);
  for (size_t i = 0; i < bars.size(); ++i) {
    const ChartBar& bar = bars[i];
    const double value = std::isfinite(bar.value) ? std::max(0.0, bar.value) : 0;
    const double center = scale.X(static_cast<double>(i) + 0.5);
    const double width = std::min(64.0, (scale.X(1) - scale.X(0)) * 0.7);
    drawing += StrCat("<rect class=\"bar f0\" x=\"", Coordinate(center - width / 2), "\" y=\"",
                      Coordinate(scale.Y(value)), "\" width=\"", Coordinate(width), "\" height=\"",
                      Coordinate(base - scale.Y(value)), "\"><title>", EscapeXml(bar.label), ": ",
                      absl::StrFormat("%.6g", bar.value), "</title></rect>\n");
    drawing += Text(center, scale.Y(value) - 5, "note", "middle", bar.note);
    drawing += Text(center, base + 17, "tick", "middle", bar.label);
  }
  drawing += LineAt("axis", kLeft, base, kWidth - kRight, base);
  drawing += Text((kLeft + kWidth - kRight) / 2, kHeight - 6, "label", "middle", spec.x_label);
  return Figure(spec, "", drawing);
}

}  // namespace freshet
