#include "local/team_command.h"

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

TEST(TeamCommand, LinesAndRowsHaveTheirPolicy) {
  EXPECT_EQ(TeamLine("worker", 7, false, "step 1"), "worker  | step 1");
  EXPECT_EQ(TeamLine("worker", 7, true, R"({"step":1})"), R"({"policy":"worker","step":1})");
}

}  // namespace
}  // namespace freshet
