#include "controller/service/job_views.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

std::string WaitsFor(job::v1::JobState state, const std::string& reason) {
  JobRecord record;
  record.set_state(state);
  record.set_reason(reason);
  return ToDetailedJob(record, nullptr).waits_for();
}

TEST(JobViews, AJobWithoutADriverWaitsForWhatItsReasonNames) {
  EXPECT_EQ(WaitsFor(job::v1::JOB_STATE_PENDING, "waits for a trainer: 0 of 1 ready"),
            "a trainer: 0 of 1 ready");
  EXPECT_EQ(WaitsFor(job::v1::JOB_STATE_PENDING, "submitted; waits for its turn"), "its turn");
  EXPECT_EQ(WaitsFor(job::v1::JOB_STATE_PAUSED, "lunch"), "lunch");
  EXPECT_EQ(WaitsFor(job::v1::JOB_STATE_FAILED, "waits for nothing"), "");
}

TEST(JobViews, WhatTheDriverSaysGoesFirst) {
  JobRecord record;
  record.set_state(job::v1::JOB_STATE_STARTING);
  record.set_reason("waits for rollouts");
  JobLive live;
  EXPECT_EQ(ToDetailedJob(record, &live).waits_for(), "rollouts");
  live.waits_for = "reward: 3 rows unscored";
  EXPECT_EQ(ToDetailedJob(record, &live).waits_for(), "reward: 3 rows unscored");
}

TEST(JobViews, GroupsThatDiedComeWithTheirReasonsAsValidText) {
  JobRecord record;
  record.set_state(job::v1::JOB_STATE_RUNNING);
  JobLive live;
  live.dead.push_back({absl::FromUnixSeconds(7), 41, 4, "lease_failed: 5 times: two\nlines \xc3"});
  live.dead.push_back({absl::FromUnixSeconds(5), 3, 0, "too_slow"});
  const job::v1::Job job = ToDetailedJob(record, &live);
  ASSERT_EQ(job.dead_groups_size(), 2);
  EXPECT_EQ(job.dead_groups(0).time().seconds(), 7);
  EXPECT_EQ(job.dead_groups(0).prompt(), 41);
  EXPECT_EQ(job.dead_groups(0).attempt(), 4);
  EXPECT_EQ(job.dead_groups(0).reason().find("lease_failed: 5 times: two lines "), 0U);
  EXPECT_FALSE(job.SerializeAsString().empty());
  EXPECT_EQ(job.dead_groups(1).reason(), "too_slow");
}

}  // namespace
}  // namespace freshet
