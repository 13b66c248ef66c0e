#include "job/config_error.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

TEST(ConfigError, NamesFileLineAndPath) {
  EXPECT_EQ(FormatConfigError({"job.yaml", 12, "a.b", "is bad"}), "job.yaml:12: a.b: is bad");
  EXPECT_EQ(FormatConfigError({"job.yaml", 0, "a.b", "is bad"}), "job.yaml: a.b: is bad");
  EXPECT_EQ(FormatConfigError({"job.yaml", 3, "", "is bad"}), "job.yaml:3: is bad");
}

TEST(ConfigError, KeepsAHostilePathOnOneShortLine) {
  const std::string line =
      FormatConfigError({"job.yaml", 1, std::string(500, 'x') + "\n", "is bad"});
  EXPECT_EQ(line, "job.yaml:1: " + std::string(120, 'x') + "...: is bad");
}

TEST(FormatConfigErrors, StopsAfterFive) {
  const std::vector<ConfigError> errors(7, ConfigError{"f", 1, "k", "m"});
  EXPECT_EQ(FormatConfigErrors(errors),
            "f:1: k: m\nf:1: k: m\nf:1: k: m\nf:1: k: m\nf:1: k: m\nand 2 more\n");
}

TEST(FormatConfigErrors, ShowsExactlyFiveWithoutARemainder) {
  EXPECT_EQ(FormatConfigErrors(std::vector<ConfigError>(5, ConfigError{"f", 1, "", "m"})),
            "f:1: m\nf:1: m\nf:1: m\nf:1: m\nf:1: m\n");
}

TEST(SortConfigErrors, PutsLinesFirstThenSetThenTheWholeFile) {
  std::vector<ConfigError> errors = {
      {"f", 0, "d", ""}, {"--set", 0, "c", ""}, {"f", 9, "b", ""}, {"f", 2, "a", ""}};
  SortConfigErrors(errors);
  std::vector<std::string> order;
  for (const ConfigError& error : errors) order.push_back(error.path);
  EXPECT_THAT(order, ElementsAre("a", "b", "c", "d"));
}

TEST(KeyPlaces, UsesTheLineOfTheNearestBlockThatWasGiven) {
  KeyPlaces places("job.yaml");
  places.Record("a", 3);
  places.Record("a.b", KeyPlaces::kFromSet);
  EXPECT_EQ(FormatConfigError(places.At("a.c.d", "m")), "job.yaml:3: a.c.d: m");
  EXPECT_EQ(FormatConfigError(places.At("a.b.c", "m")), "--set: a.b.c: m");
  EXPECT_EQ(FormatConfigError(places.At("z", "m")), "job.yaml: z: m");
}

TEST(NearestName, FindsMisspellings) {
  const std::vector<std::string> names = {"max_new_tokens", "temperature", "top_p", "top_k"};
  struct Case {
    const char* word;
    const char* nearest;
  };
  for (const Case& c :
       {Case{"max_new_tokns", "max_new_tokens"}, Case{"max-new-tokens", "max_new_tokens"},
        Case{"Temperature", "temperature"}, Case{"tempreature", "temperature"},
        Case{"topp", "top_p"}, Case{"banana", ""}, Case{"", ""}, Case{"x", ""}}) {
    EXPECT_EQ(NearestName(c.word, names), c.nearest) << c.word;
  }
}

TEST(NearestName, IgnoresVeryLongWords) {
  EXPECT_EQ(NearestName(std::string(1 << 20, 'a'), {"a"}), "");
}

TEST(Excerpt, CutsBetweenCharacters) {
  EXPECT_EQ(Excerpt("aa\xC3\xA9", 3), "aa...");
  EXPECT_EQ(Excerpt("a\nb\x7F"), "a?b?");
}

}  // namespace
}  // namespace freshet
