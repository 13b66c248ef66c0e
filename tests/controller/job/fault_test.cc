#include "controller/job/fault.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

TEST(Fault, NamesFileLineAndPath) {
  EXPECT_EQ(FormatFault({"job.yaml", 12, "a.b", "is bad"}), "job.yaml:12: a.b: is bad");
  EXPECT_EQ(FormatFault({"job.yaml", 0, "a.b", "is bad"}), "job.yaml: a.b: is bad");
  EXPECT_EQ(FormatFault({"job.yaml", 3, "", "is bad"}), "job.yaml:3: is bad");
}

TEST(Fault, KeepsAHostilePathOnOneShortLine) {
  const std::string line = FormatFault({"job.yaml", 1, std::string(500, 'x') + "\n", "is bad"});
  EXPECT_EQ(line, "job.yaml:1: " + std::string(120, 'x') + "...: is bad");
}

TEST(FormatFaults, StopsAfterFive) {
  const std::vector<Fault> faults(7, Fault{"f", 1, "k", "m"});
  EXPECT_EQ(FormatFaults(faults),
            "f:1: k: m\nf:1: k: m\nf:1: k: m\nf:1: k: m\nf:1: k: m\nand 2 more\n");
}

TEST(FormatFaults, ShowsExactlyFiveWithoutARemainder) {
  EXPECT_EQ(FormatFaults(std::vector<Fault>(5, Fault{"f", 1, "", "m"})),
            "f:1: m\nf:1: m\nf:1: m\nf:1: m\nf:1: m\n");
}

TEST(SortFaults, PutsLinesFirstThenSetThenTheWholeFile) {
  std::vector<Fault> faults = {
      {"f", 0, "d", ""}, {"--set", 0, "c", ""}, {"f", 9, "b", ""}, {"f", 2, "a", ""}};
  SortFaults(faults);
  std::vector<std::string> order;
  for (const Fault& fault : faults) order.push_back(fault.path);
  EXPECT_THAT(order, ElementsAre("a", "b", "c", "d"));
}

TEST(KeyPlaces, UsesTheLineOfTheNearestBlockThatWasGiven) {
  KeyPlaces places("job.yaml");
  places.Record("a", 3);
  places.Record("a.b", KeyPlaces::kFromSet);
  EXPECT_EQ(FormatFault(places.At("a.c.d", "m")), "job.yaml:3: a.c.d: m");
  EXPECT_EQ(FormatFault(places.At("a.b.c", "m")), "--set: a.b.c: m");
  EXPECT_EQ(FormatFault(places.At("z", "m")), "job.yaml: z: m");
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
