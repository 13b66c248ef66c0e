// top and logs.
#include "nlohmann/json.hpp"
#include "tests/services/cli/command_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

job::v1::LogEntry Line(int64_t second, const char* role, const char* text) {
  job::v1::LogEntry entry;
  entry.mutable_time()->set_seconds(1700000000 + second);
  entry.set_role(role);
  entry.set_worker(std::string(role) + "-1");
  entry.set_level("info");
  entry.set_text(text);
  return entry;
}

class ViewCommandTest : public CommandFixture {
 protected:
  ViewCommandTest() {
    service_.SetLogs({Line(1, "trainer", "step 1"), Line(2, "rollout", "leased 4")});
  }
};

TEST_F(ViewCommandTest, TopShowsOnePageInAPipe) {
  job::v1::Cluster cluster;
  cluster.set_leader("controller-1");
  job::v1::Worker* worker = cluster.add_workers();
  worker->set_name("rollout-1");
  worker->set_role("rollout");
  worker->set_state("ready");
  *cluster.add_jobs() = EndedJob("a", job::v1::JOB_STATE_RUNNING);
  service_.SetCluster(cluster);
  service_.AddJob(EndedJob("a", job::v1::JOB_STATE_RUNNING), {});
  const ChildResult result = Run({"top"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("controller controller-1"), HasSubstr("a  RUNNING"),
                                HasSubstr("rollout-1"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(nlohmann::json::parse(Run({"top", "--json"}).out)["leader"], "controller-1");
}

TEST_F(ViewCommandTest, TopGoesOnWhenTheServerComesBack) {
  const auto child = Start({"top", "-n", "3", "--interval", "0.1"});
  ASSERT_TRUE(child->AwaitOutput("0 workers", absl::Seconds(10)));
  // As many as gRPC itself tries again, and one more.
  for (int i = 0; i < 5; ++i) service_.FailNext("GetCluster", absl::UnavailableError("gone"));
  EXPECT_EQ(child->Wait(absl::Seconds(20)).exit_code, 0);
}

TEST_F(ViewCommandTest, LogsOfARole) {
  const ChildResult all = Run({"logs"});
  EXPECT_THAT(all.out, AllOf(HasSubstr("trainer-1 info step 1\n"), HasSubstr("leased 4")));
  EXPECT_THAT(Run({"logs", "--role", "trainer"}).out, Not(HasSubstr("leased")));
  EXPECT_EQ(Run({"logs", "--role", "nurse"}).exit_code, 2);
}

TEST_F(ViewCommandTest, FollowedLogsComeOnceThoughTheStreamIsOpenedAgain) {
  const auto child = Start({"logs", "-f"});
  ASSERT_TRUE(child->AwaitOutput("leased 4", absl::Seconds(10)));
  service_.SetLogs(
      {Line(1, "trainer", "step 1"), Line(2, "rollout", "leased 4"), Line(3, "trainer", "step 2")});
  ASSERT_TRUE(child->AwaitOutput("step 2", absl::Seconds(10)));
  child->Signal(SIGINT);
  const ChildResult result = child->Wait(absl::Seconds(10));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.find("step 1"), result.out.rfind("step 1"));
}

TEST_F(ViewCommandTest, FollowedLogsBeginWithTheFirstLineAlsoWhenTheStreamIsOpenedAgain) {
  service_.SetLogs({Line(5, "trainer", "step 5")});
  const auto child = Start({"logs", "-f", "--tail", "1"});
  ASSERT_TRUE(child->AwaitOutput("step 5", absl::Seconds(10)));
  service_.SetLogs({Line(1, "rollout", "an old line"), Line(5, "trainer", "step 5"),
                    Line(6, "rollout", "a new line")});
  ASSERT_TRUE(child->AwaitOutput("a new line", absl::Seconds(10)));
  child->Signal(SIGINT);
  EXPECT_THAT(child->Wait(absl::Seconds(10)).out, Not(HasSubstr("an old line")));
}

}  // namespace
}  // namespace freshet
