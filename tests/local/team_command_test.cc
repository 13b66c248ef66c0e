#include "local/team_command.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TeamCommand, ARunWithPoliciesHasTheirRuns) {
  const TestDirectory dir;
  EXPECT_THAT(FindPolicyRuns(dir.path()).value(), IsEmpty());
  EXPECT_THAT(FindPolicyRuns(dir.File("absent")).value(), IsEmpty());
  for (const char* name : {"worker", "planner", "other"}) {
    std::filesystem::create_directory(dir.File(name));
  }
  dir.Write("worker/job.yaml", "name: \"t-worker\"\nteam: t\n");
  dir.Write("planner/job.yaml", "name: t-planner\nteam: t\n");
  EXPECT_THAT(FindPolicyRuns(dir.path()).value(), ElementsAre("planner", "worker"));
  dir.Write("job.yaml", "");
  EXPECT_THAT(FindPolicyRuns(dir.path()).value(), IsEmpty()) << "a run of one job";
}

TEST(TeamCommand, RunsThatAreNotOfOneTeamAreRefused) {
  const TestDirectory dir;
  std::filesystem::create_directory(dir.File("a"));
  std::filesystem::create_directory(dir.File("b"));
  dir.Write("a/job.yaml", "name: t-a\nteam: t\n");
  for (const char* job : {"", "name: b\n", "name: t-b\n", "name: -b\n", "name: t-c\nteam: t\n",
                          "name: u-b\nteam: u\n", "name: [t-b]\nteam: {t: }\n"}) {
    dir.Write("b/job.yaml", job);
    EXPECT_THAT(FindPolicyRuns(dir.path()).status().ToString(),
                HasSubstr(": is no run and no run of several policies; name one of: a, b"))
        << job;
  }
}

TEST(TeamCommand, OverridesOfAPolicy) {
  const std::vector<std::string> policies = {"planner", "worker"};
  const auto own = OverridesOf("worker", policies,
                               {"seed=1", "policies.worker.seed=2", "policies.planner.seed=3"});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(*own, ElementsAre("seed=1", "seed=2"));
  for (const char* text :
       {"policies.other.seed=1", "policies.worker=1", "policies.", "policies.worker"}) {
    const auto failed = OverridesOf("worker", policies, {text});
    EXPECT_THAT(failed.status().ToString(), HasSubstr("one of planner, worker")) << text;
  }
  for (const char* text :
       {"name=x", "team=x", "policies.worker.name=x", "policies.planner.team=x"}) {
    EXPECT_FALSE(OverridesOf("worker", policies, {text}).ok()) << text;
  }
}

// Has a socket as the standard input of a process that a team's command has started.
class EndedPolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    writer_ = UniqueFd(ends[0]);
    const UniqueFd reader(ends[1]);
    former_ = UniqueFd(::dup(STDIN_FILENO));
    ASSERT_GE(::dup2(reader.get(), STDIN_FILENO), 0);
    ::setenv("FRESHET_TEAM_PROCESS", "1", /*overwrite=*/1);
  }
  void TearDown() override {
    ::unsetenv("FRESHET_TEAM_PROCESS");
    if (former_.get() >= 0) {
      ::dup2(former_.get(), STDIN_FILENO);
    } else {
      ::close(STDIN_FILENO);
    }
  }
  void Write(std::string_view text) {
    ASSERT_EQ(::write(writer_.get(), text.data(), text.size()), std::ssize(text));
  }

  UniqueFd writer_;
  UniqueFd former_;
};

TEST_F(EndedPolicyTest, IsTheFirstWholeLine) {
  const std::function<std::string()> ended = EndedPolicy();
  EXPECT_EQ(ended(), "");
  Write("plan");
  EXPECT_EQ(ended(), "");
  Write("ner\nworker\n");
  EXPECT_EQ(ended(), "planner");
  EXPECT_EQ(ended(), "planner");
}

TEST_F(EndedPolicyTest, NoneHasEndedIfTheCommandIsGone) {
  const std::function<std::string()> ended = EndedPolicy();
  Write("plan");
  writer_ = UniqueFd();
  EXPECT_EQ(ended(), "");
  EXPECT_EQ(ended(), "");
}

TEST_F(EndedPolicyTest, NoFunctionWithoutATeam) {
  ::unsetenv("FRESHET_TEAM_PROCESS");
  EXPECT_EQ(EndedPolicy(), nullptr);
}

TEST(TeamCommand, LinesAndRowsHaveTheirPolicy) {
  EXPECT_EQ(TeamLine("worker", 7, false, "step 1"), "worker  | step 1");
  EXPECT_EQ(TeamLine("worker", 7, true, R"({"step":1})"), R"({"policy":"worker","step":1})");
}

}  // namespace
}  // namespace freshet
