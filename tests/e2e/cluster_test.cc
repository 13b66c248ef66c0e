// A cluster on this machine, as a user runs it, with each role in its own process.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/time/clock.h"
#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ClusterTest : public FreshetFixture {
 protected:
  void SetUp() override { Up({"--rollouts", "2"}); }
  void Up(const std::vector<std::string>& flags) {
    ::setenv("XDG_STATE_HOME", Path("state").c_str(), 1);
    std::vector<std::string> args = {"cluster", "up", "--port", "0"};
    args.insert(args.end(), flags.begin(), flags.end());
    const ChildResult up = Freshet(args);
    ASSERT_EQ(up.exit_code, 0) << up.err;
    const std::string server = After(up.out + up.err, "export FRESHET_SERVER=");
    ASSERT_THAT(server, HasSubstr("127.0.0.1:"));
    ::setenv("FRESHET_SERVER", server.c_str(), 1);
  }
  void TearDown() override {
    EXPECT_EQ(Freshet({"cluster", "down"}).exit_code, 0);
    EXPECT_THAT(Processes(), IsEmpty()) << "the cluster left processes behind";
    ::unsetenv("FRESHET_SERVER");
    ::unsetenv("XDG_STATE_HOME");
  }
  static std::string After(const std::string& text, const std::string& mark) {
    const size_t begin = text.find(mark);
    if (begin == std::string::npos) return "";
    const size_t from = begin + mark.size();
    return text.substr(from, text.find_first_of(" ;\n", from) - from);
  }
  // Command lines of the cluster's processes, found by its state folder.
  std::vector<std::string> Processes() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      std::string line{std::istreambuf_iterator<char>(file), {}};
      if (line.find(Path("state")) != std::string::npos) found.push_back(line);
    }
    return found;
  }
  void Submit(const TinyJob& job, const std::string& id) {
    WriteJob(job);
    const ChildResult result = Freshet({"submit", Path("job.yaml"), "--id", id});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, id + "\n");
  }
  Json Get(const std::string& id) {
    const ChildResult result = Freshet({"get", id, "-o", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }
  // Waits until the job reaches `state` or ends.
  void Await(const std::string& id, const std::string& state) {
    const absl::Time deadline = absl::Now() + absl::Minutes(3);
    std::string now;
    while (absl::Now() < deadline) {
      now = Get(id).value("state", "");
      if (now == state || now == "SUCCEEDED" || now == "FAILED" || now == "CANCELLED") break;
    }
    ASSERT_EQ(now, state) << Freshet({"describe", id}).out;
  }
  ChildResult Ok(std::vector<std::string> args) {
    ChildResult result = Freshet(std::move(args));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
};

// Stands for a user without access to the cluster's folder: looks for the token elsewhere.
TEST_F(ClusterTest, RefusesWhoDoesNotHaveItsToken) {
  EXPECT_EQ(Freshet({"list"}).exit_code, 0);
  ::setenv("XDG_STATE_HOME", Path("elsewhere").c_str(), 1);
  const ChildResult refused = Freshet({"list"});
  ::setenv("XDG_STATE_HOME", Path("state").c_str(), 1);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("has not this cluster's token"));
}

TEST_F(ClusterTest, TheSameSeedTrainsToTheSameWeightsAsInOneProcess) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: 0}";
  Train(job);
  Submit(job, "same");
  Await("same", "SUCCEEDED");
  Ok({"checkpoint", "export", "same", Path("exported")});
  const std::string weights = folder_.Read("exported/model.safetensors");
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(weights == folder_.Read("run/checkpoints/step-6/model.safetensors"));
}

TEST_F(ClusterTest, AJobFromSubmitToDelete) {
  Submit(MakeTinyJob(), "a");
  // A repeated submit, as after a lost answer, creates no second job.
  Submit(MakeTinyJob(), "a");
  EXPECT_THAT(Ok({"watch", "a"}).out, HasSubstr("SUCCEEDED"));
  const Json job = Get("a");
  EXPECT_EQ(job.value("state", ""), "SUCCEEDED");
  EXPECT_EQ(job.value("step", 0), 6);
  EXPECT_EQ(Lines(Ok({"list"}).out).size(), 2U);
  EXPECT_THAT(Ok({"describe", "a"}).out, HasSubstr("SUCCEEDED"));
  EXPECT_THAT(Ok({"get", "a", "-o", "yaml"}).out, HasSubstr("SUCCEEDED"));
  EXPECT_THAT(Ok({"samples", "a"}).out, Not(IsEmpty()));
  EXPECT_THAT(Ok({"metrics", "a", "--plot", "reward"}).out, HasSubstr("reward"));
  EXPECT_THAT(Ok({"logs", "a", "--role", "trainer"}).out, HasSubstr("trainer"));
  EXPECT_THAT(Ok({"logs", "a", "--role", "controller"}).out, HasSubstr("job=a state=SUCCEEDED"));
  EXPECT_THAT(Ok({"checkpoint", "list", "a"}).out, HasSubstr("6"));
  EXPECT_THAT(Ok({"ledger", "verify", "a"}).out, HasSubstr("ok"));
  // Exit code 7 while its workers are still stopping.
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  ChildResult deleted = Freshet({"delete", "a"});
  while (deleted.exit_code == 7 && absl::Now() < deadline) deleted = Freshet({"delete", "a"});
  EXPECT_EQ(deleted.exit_code, 0) << deleted.err;
  const ChildResult gone = Freshet({"get", "a"});
  EXPECT_EQ(gone.exit_code, 4);
  EXPECT_THAT(gone.err, HasSubstr("there is no job a"));
}

TEST_F(ClusterTest, PauseResumeCancel) {
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 100000}";
  job["eval"] = "";
  Submit(job, "long");
  Await("long", "RUNNING");
  Ok({"pause", "long"});
  Await("long", "PAUSED");
  Ok({"resume", "long"});
  Await("long", "RUNNING");
  Ok({"cancel", "long"});
  Await("long", "CANCELLED");
}

class StandbyTest : public ClusterTest {
 protected:
  void SetUp() override { Up({"--standby"}); }
  // Sends SIGKILL to the leader. The supervisor restarts it, and either controller leads next.
  void KillTheLeader() {
    const std::string leader = Json::parse(Ok({"top", "--json"}).out)["leader"];
    const Json status = Json::parse(Ok({"cluster", "status", "--json"}).out);
    int killed = 0;
    for (const Json& process : status["processes"]) {
      if (process["grpc"] != leader) continue;
      killed += ::kill(process["process"]["pid"].get<pid_t>(), SIGKILL) == 0 ? 1 : 0;
    }
    ASSERT_EQ(killed, 1) << status;
  }
};

TEST_F(StandbyTest, CommandsGoOnWhenTheLeaderIsKilled) {
  EXPECT_THAT(std::getenv("FRESHET_SERVER"), HasSubstr(",127.0.0.1:"));
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 100000}";
  job["eval"] = "";
  Submit(job, "long");
  Await("long", "RUNNING");
  KillTheLeader();
  EXPECT_EQ(Json::parse(Ok({"get", "long", "-o", "json"}).out)["id"], "long");
  Ok({"pause", "long"});  // waits for the next leader
  Await("long", "PAUSED");
  EXPECT_THAT(Ok({"logs", "--role", "controller"}).out, HasSubstr("leads=yes"));
  Ok({"resume", "long"});
  Await("long", "RUNNING");
  Ok({"cancel", "long"});
  Await("long", "CANCELLED");
  Ok({"ledger", "verify", "long"});
}

TEST_F(ClusterTest, UpTwiceSaysWhatRunsAndRolloutsScale) {
  const ChildResult again = Ok({"cluster", "up", "--rollouts", "2"});
  EXPECT_THAT(again.out + again.err, AllOf(HasSubstr("is up already"), HasSubstr("rollout-2")));
  Ok({"scale", "rollout", "3"});
  std::string status;
  for (const absl::Time deadline = absl::Now() + absl::Minutes(1); absl::Now() < deadline;) {
    status = Freshet({"cluster", "status"}).out;
    if (status.find("rollout-3") != std::string::npos) break;
  }
  EXPECT_THAT(status, HasSubstr("rollout-3"));
}

}  // namespace
}  // namespace freshet
