#include "runlog/jsonl.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

struct Lines {
  std::vector<std::string> texts;
  absl::StatusOr<JsonlTail> tail;
};

Lines ReadAll(const std::string& path, size_t max_line_bytes) {
  Lines lines;
  lines.tail = ForEachLine(path, max_line_bytes, [&](int64_t, std::string_view line) {
    lines.texts.emplace_back(line);
    return absl::OkStatus();
  });
  return lines;
}

TEST(ForEachLine, GivesWholeLinesAndSizeOfTornOne) {
  const ScratchFolder folder;
  folder.Write("f", "one\n\nthree\nfou");
  const Lines lines = ReadAll(folder.File("f"), 100);
  ASSERT_TRUE(lines.tail.ok());
  EXPECT_THAT(lines.texts, ElementsAre("one", "", "three"));
  EXPECT_EQ(lines.tail->lines, 3);
  EXPECT_EQ(lines.tail->torn_bytes, 3U);
}

TEST(ForEachLine, JoinsLinesAcrossChunks) {
  const ScratchFolder folder;
  const std::string a(70000, 'a');
  const std::string b(65536, 'b');
  folder.Write("f", a + "\n" + b + "\n");
  const Lines lines = ReadAll(folder.File("f"), 100000);
  ASSERT_TRUE(lines.tail.ok());
  EXPECT_THAT(lines.texts, ElementsAre(a, b));
  EXPECT_EQ(lines.tail->torn_bytes, 0U);
}

TEST(ForEachLine, RefusesALineOverTheLimitNamingIt) {
  const ScratchFolder folder;
  folder.Write("f", "12345\n123456\n");
  const Lines lines = ReadAll(folder.File("f"), 5);
  EXPECT_TRUE(absl::IsInvalidArgument(lines.tail.status()));
  EXPECT_THAT(std::string(lines.tail.status().message()), ::testing::HasSubstr("f:2:"));
}

TEST(ForEachLine, SaysNotFoundForAnAbsentFile) {
  EXPECT_TRUE(absl::IsNotFound(ReadAll("/nonexistent/f", 5).tail.status()));
}

TEST(CutTornLine, CutsNothingElse) {
  struct Case {
    const char* name;
    std::string before;
    std::string after;
  };
  const std::string longer(100000, 'x');
  for (const Case& c : std::vector<Case>{{"whole", "a\nb\n", "a\nb\n"},
                                         {"torn", "a\nb\nc", "a\nb\n"},
                                         {"only torn", "abc", ""},
                                         {"empty", "", ""},
                                         {"long torn", "a\n" + longer, "a\n"},
                                         {"long whole", longer + "\n", longer + "\n"}}) {
    const ScratchFolder folder;
    folder.Write("f", c.before);
    const absl::StatusOr<uint64_t> cut = CutTornLine(folder.File("f"));
    ASSERT_TRUE(cut.ok()) << c.name;
    EXPECT_EQ(*cut, c.before.size() - c.after.size()) << c.name;
    EXPECT_EQ(folder.Read("f"), c.after) << c.name;
  }
}

TEST(CutTornLine, SaysNotFoundForAnAbsentFile) {
  EXPECT_TRUE(absl::IsNotFound(CutTornLine("/nonexistent/f").status()));
}

}  // namespace
}  // namespace freshet
