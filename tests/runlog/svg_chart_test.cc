#include "runlog/svg_chart.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/markup_check.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChartSpec Spec() {
  ChartSpec spec;
  spec.id = "c";
  spec.title = "A <title>";
  spec.description = "What & why";
  spec.x_label = "step";
  spec.y_label = "value";
  return spec;
}

TEST(NiceTicks, AreRoundAndSpanTheRange) {
  struct Case {
    double low, high;
    int target;
    std::vector<double> ticks;
  };
  for (const Case& c : std::vector<Case>{{0, 1, 5, {0, 0.2, 0.4, 0.6, 0.8, 1}},
                                         {0, 0.93, 5, {0, 0.2, 0.4, 0.6, 0.8, 1}},
                                         {1, 140, 7, {0, 20, 40, 60, 80, 100, 120, 140}},
                                         {-3, 7, 5, {-4, -2, 0, 2, 4, 6, 8}}}) {
    const std::vector<double> ticks = NiceTicks(c.low, c.high, c.target);
    ASSERT_EQ(ticks.size(), c.ticks.size()) << c.high;
    for (size_t i = 0; i < ticks.size(); ++i) EXPECT_NEAR(ticks[i], c.ticks[i], 1e-12);
  }
}

TEST(NiceTicks, AscendForAnyInput) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0, 0},
                                                                        {5, 5},
                                                                        {1e300, 1e301},
                                                                        {-1e308, 1e308},
                                                                        {0, 1e-310},
                                                                        {1, 1 + 1e-15},
                                                                        {NAN, 1},
                                                                        {3, 2},
                                                                        {1e15, 1e15 + 1}}) {
    const std::vector<double> ticks = NiceTicks(low, high, 5);
    ASSERT_GE(ticks.size(), 2U) << low;
    EXPECT_LE(ticks.size(), 50U);
    for (size_t i = 1; i < ticks.size(); ++i) EXPECT_LT(ticks[i - 1], ticks[i]) << low;
  }
}

TEST(FormatTick, IsReadable) {
  EXPECT_EQ(FormatTick(0, 0.2), "0");
  EXPECT_EQ(FormatTick(0.2, 0.2), "0.2");
  EXPECT_EQ(FormatTick(1, 0.25), "1.00");
  EXPECT_EQ(FormatTick(140, 20), "140");
  EXPECT_EQ(FormatTick(12000, 2000), "12k");
  EXPECT_EQ(FormatTick(12500, 2500), "12.5k");
  EXPECT_EQ(FormatTick(3.5e6, 5e5), "3.5M");
  EXPECT_EQ(FormatTick(2e-5, 1e-5), "2e-05");
}

TEST(LineChart, DrawsSeriesTicksLegendAndTitles) {
  const std::string svg = LineChart(Spec(), {{"total", {{1, 0.2}, {2, 0.8}}, 0},
                                             {"bound", {{1, 1}, {2, 1}}, 6, false, false, true}});
  EXPECT_EQ(MarkupError(svg), "");
  for (const char* part :
       {"<title id=\"c-t\">A &lt;title&gt;</title>", "<desc id=\"c-d\">What &amp; why</desc>",
        "class=\"line s0\"", "limit s6", ">total</li>", ">bound</li>", ">0.2</text>",
        ">step</text>", ">value</text>", "total at 2: 0.8"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
}

TEST(LineChart, BreaksTheLineAtGaps) {
  const std::string svg = LineChart(Spec(), {{"a", {{1, 1}, {2, 1}, {3, NAN}, {4, 1}, {5, 1}}, 0}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const size_t path = svg.find("class=\"line");
  const std::string data = svg.substr(path, svg.find("/>", path) - path);
  EXPECT_EQ(std::count(data.begin(), data.end(), 'M'), 2);
}

TEST(LineChart, SaysWhenThereIsNothing) {
  for (const auto& points : std::vector<std::vector<std::pair<double, double>>>{
           {}, {{1, NAN}}, {{1, std::numeric_limits<double>::infinity()}}}) {
    const std::string svg = LineChart(Spec(), {{"a", points, 0}});
    EXPECT_EQ(MarkupError(svg), "");
    EXPECT_THAT(svg, HasSubstr("no data"));
  }
}

TEST(LineChart, StaysFiniteForExtremeValues) {
  for (const auto& points : std::vector<std::vector<std::pair<double, double>>>{
           {{1, 0}}, {{1, 5}}, {{1, 1e300}, {2, -1e300}}, {{0, 1e-300}, {1, 2e-300}}}) {
    const std::string svg = LineChart(Spec(), {{"a", points, 0}});
    EXPECT_EQ(MarkupError(svg), "");
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LineChart, ThinsOutLongSeries) {
  ChartSeries series{"a", {}, 0};
  for (int i = 0; i < 100000; ++i) series.points.emplace_back(i, i % 7);
  EXPECT_LT(LineChart(Spec(), {series}).size(), size_t{20000});
}

TEST(StackedChart, PutsEachSeriesOnTheOnesBefore) {
  const std::string svg =
      StackedChart(Spec(), {{"a", {{0, 1}, {1, 1}}, 0}, {"b", {{0, 1}, {1, 1}}, 1}});
  EXPECT_EQ(MarkupError(svg), "");
  // The plot spans y = 216 (0) up to y = 14 (2): the first ends in the middle, the sum on top.
  EXPECT_THAT(svg, HasSubstr("area f0\" d=\"M64.0 115.0L626.0 115.0L"));
  EXPECT_THAT(svg, HasSubstr("area f1\" d=\"M64.0 14.0L626.0 14.0L"));
  EXPECT_LT(svg.find("area f1"), svg.find("area f0"));
}

TEST(BarChart, LabelsEveryBar) {
  const std::string svg = BarChart(Spec(), {{"0", 75, "75.0%"}, {"1", 25, "25.0%"}});
  EXPECT_EQ(MarkupError(svg), "");
  EXPECT_THAT(svg, HasSubstr(">75.0%</text>"));
  EXPECT_THAT(svg, HasSubstr(">1</text>"));
  EXPECT_THAT(BarChart(Spec(), {}), HasSubstr("no data"));
}

}  // namespace
}  // namespace freshet
