// cluster up, status and down, with a real redis-server and scripts in place of the roles.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "cli/cluster/posix_process_host.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kRole[] = R"(#!/bin/sh
role=${0##*freshet-}
[ -e "$(dirname "$0")/broken-$role" ] && { echo "cannot do it" >&2; exit 3; }
trap 'exit 0' TERM
[ "$role" = controller ] && page=" status=127.0.0.1:5"
[ "$role" = reward ] && echo "$@"
if [ "$role" = local ]; then
  echo "serving on http://$6 http=-"
else
  echo "ready $role grpc=127.0.0.1:1 http=-$page"
fi
while :; do sleep 0.05; done
)";

class ClusterCommandTest : public testing::Test {
 protected:
  ClusterCommandTest() {
    ::setenv("XDG_STATE_HOME", folder_.File("state").c_str(), 1);
    for (const char* role : {"controller", "rollout", "reward", "env", "trainer", "local"}) {
      const std::string name = std::string("bin/freshet-") + role;
      folder_.Write(name, kRole);
      std::filesystem::permissions(folder_.File(name), std::filesystem::perms::owner_all);
    }
  }
  ~ClusterCommandTest() override { Run({"cluster", "down", "--name", "t"}); }

  ChildResult Run(std::vector<std::string> args) {
    args.insert(args.begin(), FRESHET_BIN_DIR "/freshet");
    return ChildProcess(args).Wait(absl::Seconds(60));
  }
  ChildResult Up(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"cluster",   "up", "--name",    "t",
                                     "--port",    "0",  "--bin-dir", folder_.File("bin"),
                                     "--timeout", "30"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }
  std::string State(const std::string& file) const { return "state/freshet/clusters/t/" + file; }
  Json Status() const { return Json::parse(folder_.Read(State("cluster.json"))); }
  // All processes of the cluster by name, including the supervisor.
  std::map<std::string, ProcessStamp> Processes() const {
    const Json status = Status();
    const auto stamp = [](const Json& json) {
      return ProcessStamp{json.at("pid").get<int64_t>(), json.at("start_ticks").get<int64_t>()};
    };
    std::map<std::string, ProcessStamp> processes = {{"supervisor", stamp(status["supervisor"])}};
    for (const Json& process : status["processes"]) {
      processes[process["name"].get<std::string>()] = stamp(process["process"]);
    }
    return processes;
  }
  template <typename Condition>
  static bool Await(const Condition& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  const ScratchFolder folder_;
};

TEST_F(ClusterCommandTest, ComesUpSaysWhatRunsAndGoesDown) {
  const ChildResult up = Up({"--rollouts", "2"});
  ASSERT_EQ(up.exit_code, 0) << up.err;
  EXPECT_THAT(up.out, AllOf(HasSubstr("cluster t is up"), HasSubstr("rollout-2"),
                            HasSubstr("status page: http://127.0.0.1:5/\n")));
  EXPECT_THAT(up.err, HasSubstr("next: export FRESHET_SERVER=127.0.0.1:"));
  const std::map<std::string, ProcessStamp> processes = Processes();
  EXPECT_EQ(processes.size(), 8U);  // supervisor, redis, controller, 2 rollouts, 3 others

  const ChildResult again = Up();
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, AllOf(HasSubstr("is up already"), HasSubstr("rollout-2")));
  EXPECT_EQ(Processes().at("supervisor").pid, processes.at("supervisor").pid);
  EXPECT_THAT(
      Run({"cluster", "status", "--name", "t"}).out,
      AllOf(HasSubstr("cluster t: ready"), HasSubstr("status page: http://127.0.0.1:5/\n")));

  EXPECT_EQ(Run({"cluster", "down", "--name", "t"}).exit_code, 0);
  for (const auto& process : processes) {  // the supervisor ends last
    EXPECT_TRUE(Await([&] { return !Runs(process.second); })) << process.first;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.File(State("cluster.json"))));
  EXPECT_EQ(Run({"cluster", "status", "--name", "t"}).exit_code, 7);
  EXPECT_EQ(Run({"cluster", "down", "--name", "t"}).exit_code, 0);
}

TEST_F(ClusterCommandTest, RunsModelServersThatRewardWorkersAsk) {
  folder_.Write("models/a/config.json", "{}");
  const std::string folder = folder_.File("models/a");
  const ChildResult up = Up({"--model-server", "critic=" + folder, "--model-server", "rm=" + folder,
                             "--judge-server", "critic", "--reward-model-server", "rm"});
  ASSERT_EQ(up.exit_code, 0) << up.err;
  std::map<std::string, std::string> api;
  const Json status = Status();
  for (const Json& process : status["processes"]) {
    api[process["name"].get<std::string>()] = process["api"].get<std::string>();
  }
  EXPECT_THAT(up.out, AllOf(HasSubstr("model-critic-1"), HasSubstr("http://127.0.0.1:"),
                            HasSubstr(api.at("model-rm-1"))));
  EXPECT_THAT(folder_.Read(State("logs/reward-1.log")),
              AllOf(HasSubstr("--judge " + api.at("model-critic-1") + "/v1"),
                    HasSubstr("--reward-model " + api.at("model-rm-1"))));
}

TEST_F(ClusterCommandTest, RefusesModelServersThatDoNotFit) {
  const ChildResult absent = Up({"--judge-server", "critic"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("there is no --model-server critic=DIR"));
  const std::string server = "rm=" + folder_.File("nowhere");
  const ChildResult twice = Up({"--model-server", server, "--reward-model-server", "rm",
                                "--reward-model", "http://127.0.0.1:1"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--reward-model-server and --reward-model exclude"));
  folder_.Write("token", "secret");
  const ChildResult token = Up({"--model-server", server, "--reward-model-server", "rm",
                                "--reward-model-token-file", folder_.File("token")});
  EXPECT_EQ(token.exit_code, 2);
  EXPECT_THAT(
      token.err,
      HasSubstr("--reward-model-token-file and --reward-model-ca exclude --reward-model-server: "));
  const ChildResult no_folder = Up({"--model-server", server});
  EXPECT_EQ(no_folder.exit_code, 3);
  EXPECT_THAT(no_folder.err, HasSubstr("is not a folder"));
}

TEST_F(ClusterCommandTest, SecretsAreReadableByTheOwnerAlone) {
  ASSERT_EQ(Up().exit_code, 0);
  for (const char* file :
       {"redis.password", "redis.rollout.password", "redis.conf", "cluster.token"}) {
    const auto perms = std::filesystem::status(folder_.File(State(file))).permissions();
    EXPECT_EQ(perms & std::filesystem::perms::all,
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
}

TEST_F(ClusterCommandTest, RestartsARoleThatDies) {
  ASSERT_EQ(Up().exit_code, 0);
  const ProcessStamp before = Processes().at("trainer-1");
  ASSERT_EQ(::kill(static_cast<pid_t>(before.pid), SIGKILL), 0);
  EXPECT_TRUE(Await([&] {
    const ProcessStamp now = Processes().at("trainer-1");
    return now.pid != before.pid && now.pid > 0 && Status()["ready"].get<bool>();
  }));
  const Json status = Status();
  for (const Json& process : status["processes"]) {
    if (process["name"] == "trainer-1") {
      EXPECT_EQ(process["restarts"], 1);
    }
  }
}

TEST_F(ClusterCommandTest, NothingStaysWhenTheSupervisorIsKilled) {
  ASSERT_EQ(Up().exit_code, 0);
  const std::map<std::string, ProcessStamp> processes = Processes();
  ASSERT_EQ(::kill(static_cast<pid_t>(processes.at("supervisor").pid), SIGKILL), 0);
  EXPECT_TRUE(Await([&] {
    for (const auto& [name, stamp] : processes) {
      if (Runs(stamp)) return false;
    }
    return true;
  }));
  EXPECT_EQ(Run({"cluster", "status", "--name", "t"}).exit_code, 7);
  EXPECT_EQ(Up().exit_code, 0);  // leftovers do not prevent a start
}

TEST_F(ClusterCommandTest, ARoleThatCannotStartEndsTheStart) {
  folder_.Write("bin/broken-trainer", "");
  const ChildResult up = Up();
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_THAT(up.err, AllOf(HasSubstr("trainer-1 keeps dying"), HasSubstr("cannot do it"),
                            HasSubstr("freshet doctor")));
  EXPECT_EQ(Run({"cluster", "status", "--name", "t"}).exit_code, 7);
}

TEST_F(ClusterCommandTest, DeletesItsDataOnRequest) {
  ASSERT_EQ(Up().exit_code, 0);
  EXPECT_EQ(Run({"cluster", "down", "--name", "t", "--delete-data"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.File("state/freshet/clusters/t")));
}

TEST_F(ClusterCommandTest, RefusesABadNameAndATakenPort) {
  EXPECT_EQ(Run({"cluster", "up", "--name", "../x"}).exit_code, 2);
  ASSERT_EQ(Up().exit_code, 0);
  const std::string address = Status()["controller"].get<std::string>();
  const std::string redis = std::to_string(Status()["redis_port"].get<int>());
  const ChildResult taken =
      Run({"cluster", "up", "--name", "u", "--bin-dir", folder_.File("bin"), "--port", redis});
  EXPECT_EQ(taken.exit_code, 3);
  EXPECT_THAT(taken.err, AllOf(HasSubstr(redis), HasSubstr("--port")));
}

TEST_F(ClusterCommandTest, StaysInTheForegroundUntilCtrlC) {
  ChildProcess child({FRESHET_BIN_DIR "/freshet", "cluster", "up", "--foreground", "--name", "t",
                      "--port", "0", "--bin-dir", folder_.File("bin")});
  ASSERT_TRUE(child.AwaitOutput("READY", absl::Seconds(30)));
  const std::map<std::string, ProcessStamp> processes = Processes();
  child.Signal(SIGINT);
  EXPECT_EQ(child.Wait(absl::Seconds(30)).exit_code, 0);
  for (const auto& [name, stamp] : processes) EXPECT_FALSE(Runs(stamp)) << name;
}

}  // namespace
}  // namespace freshet
