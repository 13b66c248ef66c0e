#include "tests/testing/metrics_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGood[] =
    "# HELP freshet_steps_total Steps.\n"
    "# TYPE freshet_steps_total counter\n"
    "freshet_steps_total{job=\"a\"} 3\n"
    "freshet_steps_total{job=\"b\\\"\"} 4\n"
    "# HELP freshet_wait_seconds Waits.\n"
    "# TYPE freshet_wait_seconds histogram\n"
    "freshet_wait_seconds_count 2\n"
    "freshet_wait_seconds_sum 1.5\n"
    "freshet_wait_seconds_bucket{le=\"1\"} 1\n"
    "freshet_wait_seconds_bucket{le=\"+Inf\"} 2\n";

TEST(MetricsText, ReadsAGoodText) {
  const MetricsText text(kGood);
  EXPECT_THAT(text.problems(), IsEmpty());
  EXPECT_EQ(text.Find("freshet_steps_total", {{"job", "a"}}), 3);
  EXPECT_EQ(text.Find("freshet_steps_total", {{"job", "b\""}}), 4);
  EXPECT_EQ(text.Sum("freshet_steps_total"), 7);
  EXPECT_EQ(text.Find("freshet_wait_seconds_sum"), 1.5);
  EXPECT_FALSE(text.Has("freshet_other"));
}

TEST(MetricsText, FindsWhatIsWrong) {
  struct Case {
    const char* text;
    const char* problem;
  };
  const Case cases[] = {
      {"freshet_a 1\n", "without HELP and TYPE"},
      {"# TYPE freshet_a gauge\nfreshet_a 1\n", "no HELP"},
      {"# HELP freshet_a A.\nfreshet_a 1\n", "TYPE is \"\""},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a 1\nfreshet_a 2\n", "twice"},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a one\n", "no number"},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a{x} 1\n", "cannot be read"},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a 1", "line feed"},
      {"# HELP freshet_a A.\n# TYPE freshet_a counter\nfreshet_a 1\n", "_total"},
      {"# HELP freshet_a_total A.\n# TYPE freshet_a_total gauge\nfreshet_a_total 1\n", "_total"},
      {"# HELP freshet_a_total A.\n# TYPE freshet_a_total counter\nfreshet_a_total -1\n", "counts"},
      {"# HELP freshet_a_ms A.\n# TYPE freshet_a_ms gauge\nfreshet_a_ms 1\n", "\"ms\""},
      {"# HELP freshet_a_gib A.\n# TYPE freshet_a_gib gauge\nfreshet_a_gib 1\n", "\"gib\""},
      {"# HELP freshet_a_sum A.\n# TYPE freshet_a_sum gauge\nfreshet_a_sum 1\n", "histogram"},
      {"# HELP freshet:a A.\n# TYPE freshet:a gauge\nfreshet:a 1\n", "lower-case"},
      {"# HELP other_a A.\n# TYPE other_a gauge\nother_a 1\n", "begins neither"},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a{uid=\"a/1\"} 1\n", "\"uid\""},
      {"# HELP freshet_a A.\n# TYPE freshet_a gauge\nfreshet_a{job=\"\"} 1\n", "no value"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(MetricsText(c.text).problems(), testing::Contains(HasSubstr(c.problem))) << c.text;
  }
}

TEST(MetricsText, FindsHistogramsThatDoNotAddUp) {
  std::string text = kGood;
  text.replace(text.find("{le=\"1\"} 1"), 10, "{le=\"1\"} 3");
  EXPECT_THAT(MetricsText(text).problems(), ElementsAre(HasSubstr("its buckets fall")));
  text = kGood;
  text.replace(text.find("count 2"), 7, "count 1");
  EXPECT_THAT(MetricsText(text).problems(), ElementsAre(HasSubstr("is not the count")));
}

TEST(MetricsText, FindsLabelsWithTooManyValues) {
  std::string text = "# HELP freshet_a A.\n# TYPE freshet_a gauge\n";
  for (int i = 0; i <= 100; ++i) text += "freshet_a{job=\"" + std::to_string(i) + "\"} 1\n";
  EXPECT_THAT(MetricsText(text).problems(), ElementsAre(HasSubstr("101 values")));
}

}  // namespace
}  // namespace freshet
