#include "local/team_processes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

TeamProcess Shell(const std::string& name, const std::string& script) {
  return {name, {"/bin/sh", "-c", script}};
}

class TeamProcessesTest : public testing::Test {
 protected:
  TeamEnd Run(const std::vector<TeamProcess>& processes) {
    const absl::StatusOr<TeamEnd> end = team_.Run(processes);
    EXPECT_TRUE(end.ok()) << end.status();
    return end.value_or(TeamEnd());
  }

  std::vector<std::string> lines_;
  std::string stop_at_;  // line at which the team is told to stop
  int times_ = 1;
  TeamProcesses team_{[this](const std::string& name, bool is_error, std::string_view line) {
                        lines_.push_back(StrCat(name, is_error ? "! " : ": ", line));
                        for (int i = 0; line == stop_at_ && i < times_; ++i) team_.Stop();
                      },
                      absl::Minutes(1)};
};

TEST_F(TeamProcessesTest, LinesHaveTheirNames) {
  const TeamEnd end = Run({Shell("a", "echo 1; echo 2 >&2"), Shell("b", "printf 3")});
  EXPECT_EQ(end.failed, "");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(lines_, UnorderedElementsAre("a: 1", "a! 2", "b: 3"));
}

TEST_F(TeamProcessesTest, ALongLineIsSplit) {
  Run({Shell("a", "head -c 200000 /dev/zero | tr '\\0' x")});
  size_t bytes = 0;
  for (const std::string& line : lines_) {
    EXPECT_LE(line.size(), size_t{70} << 10);
    bytes += static_cast<size_t>(std::ranges::count(line, 'x'));
  }
  EXPECT_EQ(bytes, 200000u);
}

TEST_F(TeamProcessesTest, OneThatLeavesAProcessBehindHasEnded) {
  const TestDirectory dir;
  for (const char* name : {"hold", "ready"}) {
    ASSERT_EQ(::mkfifo(dir.File(name).c_str(), 0600), 0);
  }
  // The process behind is in a group of its own, and has the pipes until `writer` is closed.
  const UniqueFd writer(::open(dir.File("hold").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_GE(writer.get(), 0);
  const TeamEnd end = Run({Shell(
      "a", StrCat("cd ", dir.path(), "; setsid sh -c 'exec 3< hold; echo > ready; exec cat <&3' & ",
                  "read x < ready; echo 1; printf 2 >&2; exit 3"))});
  EXPECT_EQ(end.failed, "a");
  EXPECT_EQ(end.error, "2");
  EXPECT_THAT(lines_, UnorderedElementsAre("a: 1", "a! 2"));
}

TEST_F(TeamProcessesTest, WhenOneFailsTheOthersAreToldToStop) {
  const TestDirectory dir;
  ASSERT_EQ(::mkfifo(dir.File("fifo").c_str(), 0600), 0);
  // b fails once a can be told to stop.
  const TeamEnd end =
      Run({Shell("a", StrCat("trap 'echo saved; exit 0' TERM; echo > ", dir.File("fifo"),
                             "; while :; do sleep 0.01; done")),
           Shell("b", StrCat("read x < ", dir.File("fifo"), "; echo full >&2; exit 5"))});
  EXPECT_EQ(end.failed, "b");
  EXPECT_EQ(end.exit_code, 5);
  EXPECT_EQ(end.error, "full");
  EXPECT_THAT(lines_, Contains("a: saved"));
}

TEST_F(TeamProcessesTest, OneThatIsDoneIsNamedToTheOthers) {
  const TeamEnd end = Run({Shell("a", "exit 0"), Shell("b", "read x; echo \"$x has ended\"")});
  EXPECT_EQ(end.failed, "");
  EXPECT_THAT(lines_, ElementsAre("b: a has ended"));
}

TEST_F(TeamProcessesTest, StopsOnRequest) {
  stop_at_ = "ready";
  const TeamEnd end =
      Run({Shell("a", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done")});
  EXPECT_EQ(end.failed, "");
  EXPECT_THAT(lines_, ElementsAre("a: ready", "a: saved"));
}

TEST_F(TeamProcessesTest, ASecondRequestKills) {
  stop_at_ = "ready";
  times_ = 2;
  const TeamEnd end = Run({Shell("a", "trap '' TERM; echo ready; while :; do sleep 0.01; done")});
  EXPECT_EQ(end.failed, "");
  EXPECT_EQ(end.killed, "a");
  EXPECT_TRUE(end.interrupted);
}

TEST_F(TeamProcessesTest, ThoseThatEndByTheRequestHaveNotFailed) {
  stop_at_ = "ready";
  const std::string wait = "while :; do sleep 0.01; done";
  const TeamEnd end = Run({Shell("a", "trap 'exit 130' TERM; echo ready; " + wait)});
  EXPECT_EQ(end.failed, "");
  EXPECT_TRUE(end.interrupted);
}

TEST_F(TeamProcessesTest, OneThatIsInterruptedAloneStopsTheOthers) {
  const std::string wait = "while :; do sleep 0.01; done";
  const TeamEnd end = Run({Shell("a", "exit 6"), Shell("b", wait)});
  EXPECT_EQ(end.failed, "a");
  EXPECT_EQ(end.exit_code, 6);
}

TEST_F(TeamProcessesTest, AfterTheRequestItHasNotFailed) {
  stop_at_ = "ready";
  const TeamEnd end =
      Run({Shell("a", "trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done")});
  EXPECT_EQ(end.failed, "");
  EXPECT_FALSE(end.interrupted);
}

TEST_F(TeamProcessesTest, AFailureAfterTheRequestIsOne) {
  stop_at_ = "ready";
  const std::string wait = "while :; do sleep 0.01; done";
  const TeamEnd end =
      Run({Shell("a", "trap 'exit 3' TERM; echo ready; " + wait), Shell("b", wait)});
  EXPECT_EQ(end.failed, "a");
  EXPECT_EQ(end.exit_code, 3);
}

TEST_F(TeamProcessesTest, OneThatCannotBeStartedIsNamed) {
  const absl::StatusOr<TeamEnd> end =
      team_.Run({Shell("a", "sleep 1000"), {"b", {"/no/such/program"}}});
  EXPECT_EQ(end.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(end.status().ToString(), testing::HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace freshet
