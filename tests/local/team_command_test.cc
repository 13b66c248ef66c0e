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
  EXPECT_THAT(FindPolicyRuns(dir.path()), IsEmpty());
  EXPECT_THAT(FindPolicyRuns(dir.File("absent")), IsEmpty());
  for (const char* name : {"worker", "planner", "other"}) {
    std::filesystem::create_directory(dir.File(name));
  }
  dir.Write("worker/job.yaml", "");
  dir.Write("planner/job.yaml", "");
  EXPECT_THAT(FindPolicyRuns(dir.path()), ElementsAre("planner", "worker"));
  dir.Write("job.yaml", "");
  EXPECT_THAT(FindPolicyRuns(dir.path()), IsEmpty()) << "a run of one job";
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
}

TEST(TeamCommand, LinesAndRowsHaveTheirPolicy) {
  EXPECT_EQ(TeamLine("worker", 7, false, "step 1"), "worker  | step 1");
  EXPECT_EQ(TeamLine("worker", 7, true, R"({"step":1})"), R"({"policy":"worker","step":1})");
}

}  // namespace
}  // namespace freshet
