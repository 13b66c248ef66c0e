#include "base/subprocess.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Subprocess>> Shell(const std::string& script,
                                                  std::vector<std::string> environment = {}) {
  SubprocessOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.environment = std::move(environment);
  return Subprocess::Start(options);
}

TEST(SubprocessTest, TellsHowItEnded) {
  auto well = Shell("exit 0");
  ASSERT_TRUE(well.ok()) << well.status();
  EXPECT_TRUE((*well)->Ending().ok());
  EXPECT_TRUE((*well)->Ending().ok()) << "again";
  EXPECT_TRUE((*well)->WaitFor(absl::ZeroDuration()));
  EXPECT_EQ(Message((*Shell("exit 3"))->Ending()), "has ended with exit code 3");
  EXPECT_EQ(Message((*Shell("kill -TERM $$"))->Ending()), "was ended by signal 15");
}

TEST(SubprocessTest, OneThatCannotBeStartedIsNamed) {
  SubprocessOptions options;
  options.argv = {"/no/such/program"};
  const auto process = Subprocess::Start(options);
  EXPECT_EQ(process.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(process.status()), HasSubstr("/no/such/program cannot be started"));
}

TEST(SubprocessTest, GetsVariablesBesidesThoseOfThisProcess) {
  EXPECT_TRUE((*Shell("test \"$ANSWER\" = 42 && test -n \"$PATH\"", {"ANSWER=42"}))->Ending().ok());
  EXPECT_TRUE((*Shell("test \"$PATH\" = replaced", {"PATH=replaced"}))->Ending().ok());
}

TEST(SubprocessTest, KillingItEndsWhatItHasStarted) {
  const TestDirectory dir;
  ASSERT_EQ(::mkfifo(dir.File("fifo").c_str(), 0600), 0);
  // Both have the fifo's end for writing; reading it ends when both are gone.
  auto process = Shell(StrCat("exec > ", dir.File("fifo"), "; sleep 1000 & echo; wait"));
  ASSERT_TRUE(process.ok());
  const UniqueFd reader(::open(dir.File("fifo").c_str(), O_RDONLY));
  char newline = 0;
  ASSERT_EQ(::read(reader.get(), &newline, 1), 1) << "the other one runs";
  EXPECT_FALSE((*process)->WaitFor(absl::ZeroDuration()));
  (*process)->Kill();
  EXPECT_EQ(Message((*process)->Ending()), "was ended by signal 9");
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
}

}  // namespace
}  // namespace freshet
