#include "cli/cluster/cluster_state.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

ClusterState SomeState() {
  ClusterState state;
  state.name = "lab";
  state.supervisor = {42, 4200};
  state.started = absl::FromUnixSeconds(1000);
  state.ready = true;
  state.controller = "127.0.0.1:7070";
  state.redis_port = 6000;
  state.wanted = {{"rollout", 2}};
  ProcessRecord rollout;
  rollout.id = {"rollout", "small", 2};
  rollout.phase = Phase::kReady;
  rollout.stamp = {50, 5000};
  rollout.started = absl::FromUnixSeconds(1000);
  rollout.grpc = "127.0.0.1:1";
  rollout.http = "127.0.0.1:2";
  rollout.restarts = 3;
  state.processes.push_back(rollout);
  ProcessRecord trainer;
  trainer.id = {"trainer", "", 1};
  trainer.phase = Phase::kBackoff;
  trainer.started = absl::FromUnixSeconds(1000);
  trainer.last_end = "exit code 3";
  state.processes.push_back(trainer);
  ProcessRecord model = rollout;
  model.id = {"model", "rm", 1};
  model.grpc = "";
  model.api = "http://127.0.0.1:3";
  model.http = "127.0.0.1:4";
  model.restarts = 0;
  state.processes.push_back(model);
  return state;
}

TEST(ClusterState, IsReadBackAsItWasWritten) {
  const std::string json = StateToJson(SomeState());
  const absl::StatusOr<ClusterState> state = ParseState(json, "cluster.json");
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(StateToJson(*state), json);
  EXPECT_EQ(state->processes[0].id, (ProcessId{"rollout", "small", 2}));
  EXPECT_EQ(state->processes[1].phase, Phase::kBackoff);
}

TEST(ClusterState, NamesTheStatusPageOfAControllerThatRuns) {
  ClusterState state = SomeState();
  EXPECT_EQ(StatusPage(state), "");
  ProcessRecord dead;
  dead.id = {"controller", "", 1};
  dead.phase = Phase::kBackoff;
  dead.status = "127.0.0.1:3";
  ProcessRecord leader = dead;
  leader.id.index = 2;
  leader.phase = Phase::kReady;
  leader.status = "127.0.0.1:4";
  state.processes.push_back(dead);
  state.processes.push_back(leader);
  EXPECT_EQ(StatusPage(state), "http://127.0.0.1:4/");
  EXPECT_EQ(StatusPage(*ParseState(StateToJson(state), "cluster.json")), "http://127.0.0.1:4/");
}

TEST(ClusterState, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[]", "{}", R"({"name": 3})"}) {
    const absl::Status status = ParseState(text, "cluster.json").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cluster.json")) << text;
  }
}

TEST(ClusterState, TableOfProcesses) {
  // clang-format off
  constexpr char kTable[] = R"(NAME             STATE               HEALTH  PID  GRPC                HTTP         RESTARTS  UP
rollout-small-2  ready               ready   50   127.0.0.1:1         127.0.0.1:2  3         1m00s
trainer-1        died (exit code 3)  -       -    -                   -            0         -
model-rm-1       ready               -       50   http://127.0.0.1:3  127.0.0.1:4  0         1m00s
)";
  // clang-format on
  EXPECT_EQ(FormatState(SomeState(), {{"rollout-small-2", "ready"}}, absl::FromUnixSeconds(1060)),
            kTable);
}

}  // namespace
}  // namespace freshet
