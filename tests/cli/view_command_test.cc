// top and logs.
#include <thread>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/cli/command_fixture.h"

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

job::v1::Cluster ClusterOf(const std::vector<std::pair<const char*, const char*>>& workers) {
  job::v1::Cluster cluster;
  cluster.set_leader("h:7070");
  for (const auto& [role, state] : workers) {
    job::v1::Worker* worker = cluster.add_workers();
    worker->set_role(role);
    worker->set_state(state);
  }
  return cluster;
}

TEST_F(ViewCommandTest, HealthNeedsALeaderAndAReadyWorkerOfEachRole) {
  service_.SetCluster(ClusterOf(
      {{"rollout", "ready"}, {"rollout", "lost"}, {"reward", "ready"}, {"trainer", "ready"}}));
  const ChildResult healthy = Run({"cluster", "health"});
  EXPECT_EQ(healthy.exit_code, 0) << healthy.err;
  EXPECT_EQ(healthy.out, "controller h:7070 leads; ready: 1 reward, 1 rollout, 1 trainer\n");

  job::v1::Cluster poor = ClusterOf({{"rollout", "joining"}, {"reward", "ready"}});
  poor.clear_leader();
  service_.SetCluster(poor);
  const ChildResult lacking = Run({"cluster", "health"});
  EXPECT_EQ(lacking.exit_code, 1);
  EXPECT_EQ(lacking.err,
            "freshet: no controller leads\n"
            "freshet: no rollout is ready, of 1 registered\n"
            "freshet: no trainer is ready, of 0 registered\n");
}

TEST_F(ViewCommandTest, HealthWaits) {
  service_.SetCluster(ClusterOf({{"rollout", "ready"}, {"reward", "ready"}}));
  const auto child = Start({"cluster", "health", "--wait", "60"});
  while (service_.calls()["GetCluster"] < 2) std::this_thread::yield();
  service_.SetCluster(ClusterOf({{"rollout", "ready"}, {"reward", "ready"}, {"trainer", "ready"}}));
  EXPECT_EQ(child->Wait(absl::Seconds(20)).exit_code, 0);

  service_.SetCluster(ClusterOf({{"rollout", "ready"}, {"reward", "ready"}}));
  const ChildResult late = Run({"cluster", "health", "--wait", "0.2"});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("no trainer is ready"));
}

TEST_F(ViewCommandTest, HealthOfAClusterThatDoesNotAnswer) {
  const ChildResult nobody = Run({"cluster", "health", "--server", "127.0.0.1:1"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
  service_.FailNext("GetCluster", absl::PermissionDeniedError("not allowed"));
  const ChildResult refused = Run({"cluster", "health"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("not allowed"));
}

TEST_F(ViewCommandTest, TopGoesOnWhenTheServerComesBack) {
  const auto child = Start({"top", "-n", "3", "--interval", "0.1"});
  ASSERT_TRUE(child->AwaitOutput("0 workers", absl::Seconds(10)));
  // One failure more than gRPC retries.
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
