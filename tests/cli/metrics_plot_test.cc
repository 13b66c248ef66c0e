#include "cli/format/metrics_plot.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(MetricsPlot, DrawsALineFromCornerToCorner) {
  EXPECT_EQ(
      PlotSeries("reward", {{1, 0}, {2, 1}, {3, 2}}, {.width = 20, .height = 3, .ascii = true}),
      "reward  last 2\n"
      "       2 |       ***\n"
      "         |   ****\n"
      "       0 |***\n"
      "          1        3\n");
}

TEST(MetricsPlot, BrailleHasTwoByFourDotsACharacter) {
  // A flat series is drawn in the middle, next to its label.
  const std::string text = PlotSeries("x", {{1, 5}}, {.width = 20, .height = 2, .ascii = false});
  EXPECT_THAT(text, HasSubstr("       5 \u2502    \u2808\n"));
}

TEST(MetricsPlot, LeavesOutWhatIsNotFinite) {
  EXPECT_EQ(PlotSeries("x", {{1, NAN}, {2, INFINITY}}, {}), "x: nothing to plot yet\n");
  EXPECT_THAT(PlotSeries("x", {{1, NAN}, {2, 3}}, {.ascii = true}), HasSubstr("last 3"));
}

TEST(MetricsPlot, SurvivesAnySize) {
  for (const int size : {-5, 0, 1, 1000}) {
    EXPECT_FALSE(PlotSeries("x", {{1, 1}, {2, 2}}, {.width = size, .height = size}).empty());
  }
}

const std::vector<std::string> kRows = {
    R"({"step": 1, "reward_mean": 0.1, "reward_components": {"exact": 0.2}})",
    R"({"step": 2, "reward_mean": null})",
    "torn",
    R"({"step": 3, "reward_mean": 0.3})",
    R"({"eval_name": "heldout", "policy_version": 2, "eval_accuracy": 0.9})",
    R"({"eval_name": "hard", "policy_version": 2, "eval_accuracy": 0.1,
        "reward_components": {"exact": 0.7}})"};

TEST(MetricsPlot, TakesTheValuesOfAKeyByStep) {
  EXPECT_THAT(*SeriesOf(kRows, "reward"), ElementsAre(Pair("", Series{{1, 0.1}, {3, 0.3}})));
  EXPECT_THAT(*SeriesOf(kRows, "reward_components.exact"), ElementsAre(Pair("", Series{{1, 0.2}})))
      << "that of steps";
  EXPECT_THAT(*SeriesOf(kRows, "eval"),
              ElementsAre(Pair("hard", Series{{2, 0.1}}), Pair("heldout", Series{{2, 0.9}})));
}

TEST(MetricsPlot, NamesTheKeysThereAre) {
  const auto series = SeriesOf(kRows, "los");
  EXPECT_TRUE(absl::IsNotFound(series.status()));
  EXPECT_THAT(std::string(series.status().message()), HasSubstr("reward_mean"));
  EXPECT_THAT(std::string(SeriesOf({}, "loss").status().message()), HasSubstr("not finished"));
}

}  // namespace
}  // namespace freshet
