#include "cli/commands/team_submission.h"

#include "gtest/gtest.h"
#include "job/job_id.h"

namespace freshet {
namespace {

TEST(TeamId, LeavesRoomForThePolicies) {
  std::vector<JobResult> jobs(2);
  jobs[0].policy = "a";
  jobs[1].policy = std::string(40, 'b');
  for (JobResult& job : jobs) job.spec.set_team(std::string(20, 'n'));
  const std::string id = MakeTeamId(jobs, 1);
  EXPECT_EQ(id.size() + 41, kMaxJobIdLength);
  EXPECT_TRUE(CheckTeamIds(jobs, id).ok());
  EXPECT_EQ(CheckTeamIds(jobs, id + "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckTeamIds(jobs, "a b").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
