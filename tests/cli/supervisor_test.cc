#include "cli/cluster/supervisor.h"

#include <csignal>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Fake processes that are ready at once and exit when signalled, or when a test kills them.
class FakeProcessHost final : public ProcessHost {
 public:
  absl::StatusOr<ProcessStamp> Start(const ProcessId& id,
                                     const std::vector<std::string>& argv) override {
    EXPECT_EQ(running_.count(id), 0U);
    log.push_back("start " + id.Name());
    if (broken.count(id.role) > 0) return FailedPrecondition("no such program");
    running_[id] = argv;
    if (silent.count(id.role) == 0) {
      Say(id, id.role == "redis" ? "1:M * Ready to accept connections"
                                 : StrCat("ready ", id.role, " grpc=h:1 http=h:2"));
    }
    return ProcessStamp{++last_pid_, 7};
  }
  void Signal(const ProcessId& id, int signal) override {
    log.push_back(StrCat(signal == SIGTERM ? "term " : "kill ", id.Name()));
    if (signal == SIGTERM && deaf.count(id.role) > 0) return;
    End(id, signal == SIGTERM ? 0 : -1, signal == SIGTERM ? 0 : SIGKILL);
  }
  std::vector<ProcessEvent> Wait(absl::Duration) override {
    std::vector<ProcessEvent> events(events_.begin(), events_.end());
    events_.clear();
    return events;
  }

  void End(const ProcessId& id, int exit_code, int signal) {
    if (running_.erase(id) == 0) return;
    ProcessEvent event;
    event.kind = ProcessEvent::Kind::kExited;
    event.id = id;
    event.exit_code = exit_code;
    event.signal = signal;
    events_.push_back(event);
  }
  void Say(const ProcessId& id, const std::string& line) {
    ProcessEvent event;
    event.id = id;
    event.line = line;
    events_.push_back(event);
  }
  size_t running() const { return running_.size(); }
  std::vector<std::string> TakeLog() { return std::exchange(log, {}); }

  std::vector<std::string> log;
  std::set<std::string> broken;  // roles that fail to start
  std::set<std::string> silent;  // roles that never become ready
  std::set<std::string> deaf;    // roles that ignore signals

 private:
  int64_t last_pid_ = 100;
  std::map<ProcessId, std::vector<std::string>> running_;
  std::deque<ProcessEvent> events_;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest()
      : supervisor_(Layout(), host_, clock_,
                    [this](std::string_view line) { said_.emplace_back(line); }) {}

  static ClusterLayout Layout() {
    ClusterLayout layout;
    layout.name = "test";
    layout.folder = "/state";
    layout.binary_folder = "/bin";
    layout.redis_program = "/usr/bin/redis-server";
    layout.redis_port = 6000;
    layout.controller_ports = {7070};
    layout.wanted = {{"redis", 1}, {"controller", 1}, {"rollout", 2}, {"trainer", 1}};
    return layout;
  }
  void Tick(int times = 1) {
    for (int i = 0; i < times; ++i) supervisor_.Tick(absl::ZeroDuration());
  }
  void BringUp() {
    Tick(4);
    ASSERT_TRUE(supervisor_.Ready());
    host_.TakeLog();
  }
  ProcessRecord Record(const std::string& name) const {
    for (const ProcessRecord& record : supervisor_.records()) {
      if (record.id.Name() == name) return record;
    }
    return {};
  }

  FakeClock clock_;
  FakeProcessHost host_;
  std::vector<std::string> said_;
  Supervisor supervisor_;
};

TEST_F(SupervisorTest, BringsAClusterUpInOrder) {
  Tick(3);
  EXPECT_FALSE(supervisor_.Ready());
  EXPECT_THAT(host_.log, ElementsAre("start redis", "start controller-1", "start rollout-1",
                                     "start rollout-2", "start trainer-1"));
  Tick();
  EXPECT_TRUE(supervisor_.Ready());
  EXPECT_EQ(Record("rollout-2").grpc, "h:1");
  EXPECT_EQ(Record("rollout-2").http, "h:2");
}

TEST_F(SupervisorTest, RestartsWhatDiesAfterAWait) {
  BringUp();
  host_.End({"rollout", "", 1}, -1, SIGKILL);
  Tick();
  EXPECT_FALSE(supervisor_.Ready());
  EXPECT_THAT(host_.log, IsEmpty());
  EXPECT_EQ(Record("rollout-1").last_end, "signal 9");
  clock_.Advance(RestartDelay(1));
  Tick(2);
  EXPECT_THAT(host_.log, ElementsAre("start rollout-1"));
  EXPECT_TRUE(supervisor_.Ready());
  EXPECT_EQ(Record("rollout-1").restarts, 1);
}

TEST_F(SupervisorTest, WaitsLongerEachTimeAndForgivesAStableProcess) {
  BringUp();
  for (int failures = 1; failures <= 3; ++failures) {
    host_.End({"trainer", "", 1}, 1, 0);
    Tick();
    clock_.Advance(RestartDelay(failures) - absl::Milliseconds(1));
    Tick();
    EXPECT_EQ(Record("trainer-1").phase, Phase::kBackoff) << failures;
    clock_.Advance(absl::Milliseconds(1));
    Tick(2);
    EXPECT_EQ(Record("trainer-1").phase, Phase::kReady) << failures;
  }
  EXPECT_EQ(supervisor_.FailedRepeatedly(3), "trainer-1");
  clock_.Advance(kStableAfter);
  host_.End({"trainer", "", 1}, 1, 0);
  Tick();
  EXPECT_EQ(supervisor_.FailedRepeatedly(2), "");
}

TEST_F(SupervisorTest, AProgramThatCannotBeStartedCountsAsAFailure) {
  host_.broken.insert("trainer");
  for (int i = 0; i < 10; ++i) {
    Tick();
    clock_.Advance(absl::Seconds(10));
  }
  EXPECT_FALSE(supervisor_.Ready());
  EXPECT_EQ(supervisor_.FailedRepeatedly(3), "trainer-1");
  EXPECT_EQ(Record("trainer-1").last_end, "no such program");
}

TEST_F(SupervisorTest, FollowsWhatIsWanted) {
  BringUp();
  supervisor_.SetWanted({{"rollout", 3}, {"reward", 1}});
  Tick(2);
  EXPECT_THAT(host_.TakeLog(), ElementsAre("start reward-1", "start rollout-3"));
  EXPECT_TRUE(supervisor_.Ready());
  supervisor_.SetWanted({{"rollout", 1}});
  Tick(2);
  EXPECT_THAT(host_.TakeLog(), ElementsAre("term rollout-3", "term rollout-2"));
  EXPECT_EQ(host_.running(), 5U);
  EXPECT_EQ(Record("rollout-2").id.role, "");
  EXPECT_TRUE(supervisor_.Ready());
}

TEST_F(SupervisorTest, ADrainedProcessIsNotRestarted) {
  BringUp();
  supervisor_.SetWanted({{"rollout", 1}});
  Tick(2);
  host_.TakeLog();
  clock_.Advance(absl::Minutes(5));
  Tick(3);
  EXPECT_THAT(host_.log, IsEmpty());
}

TEST_F(SupervisorTest, KillsWhatDoesNotEnd) {
  BringUp();
  host_.deaf.insert("rollout");
  supervisor_.SetWanted({{"rollout", 1}});
  Tick(2);
  EXPECT_THAT(host_.TakeLog(), ElementsAre("term rollout-2"));
  clock_.Advance(PlanLimits().drain_timeout + absl::Seconds(1));
  Tick(2);
  EXPECT_THAT(host_.TakeLog(), ElementsAre("kill rollout-2"));
}

TEST_F(SupervisorTest, KillsAndRestartsWhatDoesNotGetReady) {
  host_.silent.insert("trainer");
  Tick(4);
  host_.TakeLog();
  clock_.Advance(PlanLimits().start_timeout + absl::Seconds(1));
  Tick(2);
  EXPECT_THAT(host_.TakeLog(), ElementsAre("kill trainer-1"));
  clock_.Advance(RestartDelay(1));
  Tick();
  EXPECT_THAT(host_.TakeLog(), ElementsAre("start trainer-1"));
}

TEST_F(SupervisorTest, StopsInOrderAndIsDone) {
  BringUp();
  supervisor_.Stop();
  EXPECT_FALSE(supervisor_.Done());
  Tick(4);
  EXPECT_TRUE(supervisor_.Done());
  EXPECT_THAT(host_.log, ElementsAre("term rollout-1", "term rollout-2", "term trainer-1",
                                     "term controller-1", "term redis"));
  EXPECT_EQ(host_.running(), 0U);
}

TEST_F(SupervisorTest, AProcessThatDiesWhileAllStopsStaysDead) {
  BringUp();
  supervisor_.Stop();
  host_.End({"redis", "", 1}, -1, SIGKILL);
  clock_.Advance(absl::Minutes(1));
  Tick(4);
  EXPECT_TRUE(supervisor_.Done());
  EXPECT_THAT(host_.log, Not(Contains(HasSubstr("start"))));
}

TEST_F(SupervisorTest, SaysWhatHappens) {
  BringUp();
  host_.End({"rollout", "", 1}, 3, 0);
  Tick();
  EXPECT_THAT(said_, Contains("rollout-1 is ready: grpc h:1, http h:2"));
  EXPECT_THAT(said_, Contains("rollout-1 has died: exit code 3; starts again in 200ms"));
}

TEST_F(SupervisorTest, NamesThePortOfAProcessThatDoesNotBecomeReady) {
  host_.silent = {"redis"};
  Tick();
  host_.End({"redis", "", 1}, 1, 0);
  Tick();
  EXPECT_THAT(said_,
              Contains(HasSubstr("; see its log. If another program uses 127.0.0.1:6000, run ")));
}

TEST_F(SupervisorTest, AProcessThatTheControllerDrainedIsNotStartedAgain) {
  BringUp();
  host_.End({"rollout", "", 2}, 0, 0);
  Tick();
  clock_.Advance(absl::Seconds(1));
  Tick();
  supervisor_.SetWanted({{"rollout", 1}});
  clock_.Advance(absl::Seconds(5));
  Tick(2);
  EXPECT_THAT(host_.log, Not(Contains(HasSubstr("start rollout-2"))));
  EXPECT_TRUE(supervisor_.Ready());
}

TEST_F(SupervisorTest, RevisionGrowsOnlyWithChanges) {
  BringUp();
  const int64_t revision = supervisor_.revision();
  Tick(3);
  EXPECT_EQ(supervisor_.revision(), revision);
  host_.End({"rollout", "", 1}, 3, 0);
  Tick();
  EXPECT_GT(supervisor_.revision(), revision);
}

}  // namespace
}  // namespace freshet
