#include "cli/cluster/posix_process_host.h"

#include <csignal>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class PosixProcessHostTest : public testing::Test {
 protected:
  // Collects events until a process exits, for at most 10 s.
  std::vector<ProcessEvent> UntilExit() {
    std::vector<ProcessEvent> all;
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (absl::Now() < deadline) {
      for (ProcessEvent& event : host_.Wait(absl::Milliseconds(100))) {
        all.push_back(std::move(event));
      }
      if (!all.empty() && all.back().kind == ProcessEvent::Kind::kExited) return all;
    }
    ADD_FAILURE() << "the process has not ended";
    return all;
  }
  absl::StatusOr<ProcessStamp> Run(const std::string& script) {
    return host_.Start(id_, {"/bin/sh", "-c", script});
  }

  const ScratchFolder folder_;
  const ProcessId id_{"rollout", "", 1};
  PosixProcessHost host_{[this](const ProcessId& id) { return folder_.File(id.Name() + ".log"); }};
};

TEST_F(PosixProcessHostTest, ReportsLinesOfStdoutAndTheExitCode) {
  ASSERT_TRUE(Run("echo one; echo err >&2; printf two; exit 3").ok());
  const std::vector<ProcessEvent> events = UntilExit();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].line, "one");
  EXPECT_EQ(events[0].id, id_);
  EXPECT_EQ(events[1].exit_code, 3);
  EXPECT_EQ(events[1].signal, 0);
  EXPECT_THAT(folder_.Read("rollout-1.log"), HasSubstr("err\n"));
  EXPECT_THAT(folder_.Read("rollout-1.log"), HasSubstr("two"));
}

TEST_F(PosixProcessHostTest, SignalsAndStamps) {
  const absl::StatusOr<ProcessStamp> stamp = Run("exec sleep 100");
  ASSERT_TRUE(stamp.ok());
  EXPECT_TRUE(Runs(*stamp));
  EXPECT_FALSE(Runs({stamp->pid, stamp->start_ticks + 1}));
  host_.Signal(id_, SIGTERM);
  EXPECT_EQ(UntilExit().back().signal, SIGTERM);
  EXPECT_FALSE(Runs(*stamp));
  host_.Signal(id_, SIGTERM);  // no process is left
}

TEST_F(PosixProcessHostTest, AProgramThatIsNotThereExits127) {
  ASSERT_TRUE(host_.Start(id_, {"/nonexistent/program"}).ok());
  EXPECT_EQ(UntilExit().back().exit_code, 127);
}

TEST_F(PosixProcessHostTest, ChildrenDoNotInheritBlockedSignals) {
  ASSERT_TRUE(Run("kill -TERM $$; sleep 5").ok());
  EXPECT_EQ(UntilExit().back().signal, SIGTERM);
}

TEST_F(PosixProcessHostTest, KillsWhatRunsWhenItEnds) {
  ProcessStamp stamp;
  {
    PosixProcessHost host([this](const ProcessId& id) { return folder_.File(id.Name()); });
    const absl::StatusOr<ProcessStamp> started = host.Start(id_, {"/bin/sleep", "100"});
    ASSERT_TRUE(started.ok());
    stamp = *started;
    EXPECT_TRUE(Runs(stamp));
  }
  EXPECT_FALSE(Runs(stamp));
}

TEST_F(PosixProcessHostTest, BoundsALine) {
  ASSERT_TRUE(Run("head -c 100000 /dev/zero | tr '\\0' x; echo; echo next").ok());
  std::vector<std::string> lines;
  for (const ProcessEvent& event : UntilExit()) {
    if (event.kind == ProcessEvent::Kind::kLine) lines.push_back(event.line);
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].size(), 4096U);
  EXPECT_EQ(lines[1], "next");
}

}  // namespace
}  // namespace freshet
