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

}  // namespace
}  // namespace freshet
