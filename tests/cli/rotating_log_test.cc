#include "cli/cluster/rotating_log.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

TEST(RotatingLog, KeepsAtMostTwoFiles) {
  const ScratchFolder folder;
  {
    RotatingLog log(folder.File("x.log"), 10);
    for (const char* line : {"aaaa\n", "bbbb\n", "cccc\n", "dddd\n", "eeee\n"}) log.Write(line);
  }
  EXPECT_EQ(folder.Read("x.log.1"), "cccc\ndddd\n");
  EXPECT_EQ(folder.Read("x.log"), "eeee\n");
}

TEST(RotatingLog, GoesOnWithAFileThatIsThere) {
  const ScratchFolder folder;
  { RotatingLog(folder.File("x.log"), 100).Write("one\n"); }
  { RotatingLog(folder.File("x.log"), 100).Write("two\n"); }
  EXPECT_EQ(folder.Read("x.log"), "one\ntwo\n");
}

TEST(RotatingLog, TakesAWriteThatIsLargerThanTheLimit) {
  const ScratchFolder folder;
  RotatingLog log(folder.File("x.log"), 4);
  log.Write("0123456789");
  log.Write("x");
  EXPECT_EQ(folder.Read("x.log.1"), "0123456789");
}

TEST(RotatingLog, DropsWhatCannotBeWritten) {
  RotatingLog log("/nonexistent/x.log", 4);
  log.Write("x");
}

}  // namespace
}  // namespace freshet
