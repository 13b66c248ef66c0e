#include "controller/api/job_views.h"

#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/in_memory_event_log.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

TEST(JobViews, AnEndedJobKeepsTheCountsOfItsEnd) {
  JobLive live;
  live.groups["ready"] = 3;
  live.ended["dead(score_failed)"] = 2;
  live.curated["skipped"] = 7;
  live.dead.push_back({absl::FromUnixSeconds(7), 41, 4, "too_slow"});
  JobRecord record;
  record.set_state(job::v1::JOB_STATE_SUCCEEDED);
  SetCounts(live, *record.mutable_counts_at_end());
  const JobLive driver;  // still there for a moment
  for (const JobLive* at : {static_cast<const JobLive*>(nullptr), &driver}) {
    const job::v1::Job job = ToDetailedJob(record, at);
    EXPECT_EQ(job.groups().at("ready"), 3);
    EXPECT_EQ(job.ended().at("dead(score_failed)"), 2);
    EXPECT_EQ(job.curated().at("skipped"), 7);
    EXPECT_EQ(job.dead_groups_size(), 1);
  }
  record.set_state(job::v1::JOB_STATE_PENDING);  // it is resumed
  EXPECT_TRUE(ToDetailedJob(record, nullptr).groups().empty());
}

TEST(JobViews, TheListByStateBeginsWithWhatIsAtWork) {
  // (state, creation time in seconds). The oldest job is running, behind a queue.
  const std::vector<std::pair<job::v1::JobState, int>> jobs = {
      {job::v1::JOB_STATE_PENDING, 9},  {job::v1::JOB_STATE_RUNNING, 1},
      {job::v1::JOB_STATE_FAILED, 8},   {job::v1::JOB_STATE_PENDING, 2},
      {job::v1::JOB_STATE_STARTING, 3}, {job::v1::JOB_STATE_SUCCEEDED, 7},
      {job::v1::JOB_STATE_PAUSED, 4},   {job::v1::JOB_STATE_CANCELLED, 6}};
  std::vector<JobRecord> records;
  for (const auto& [state, second] : jobs) {
    JobRecord& record = records.emplace_back();
    record.set_id(StrCat(second));
    record.set_state(state);
    record.mutable_created()->set_seconds(second);
  }
  const auto ids = [&](size_t limit) {
    std::string text;
    for (const job::v1::Job& job : ListJobsByState(records, limit).jobs) text += job.id();
    return text;
  };
  EXPECT_EQ(ids(8), "43192876");
  EXPECT_FALSE(ListJobsByState(records, 8).more);
  EXPECT_EQ(ids(7), "4319287");
  EXPECT_TRUE(ListJobsByState(records, 7).more);
  EXPECT_EQ(ids(1), "4");
  EXPECT_TRUE(ListJobsByState({}, 1).jobs.empty());
}

TEST(JobViews, AQueueDoesNotHideTheJobAtWork) {
  std::vector<JobRecord> records(151);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].set_id(StrCat("job-", i));
    records[i].set_state(i == 0 ? job::v1::JOB_STATE_RUNNING : job::v1::JOB_STATE_PENDING);
    records[i].mutable_created()->set_seconds(static_cast<int64_t>(i));
  }
  const StatusJobs list = ListJobsByState(records, 100);
  ASSERT_EQ(list.jobs.size(), 100U);
  EXPECT_EQ(list.jobs[0].id(), "job-0");
  EXPECT_EQ(list.jobs[1].id(), "job-150");
  EXPECT_TRUE(list.more);
}

// Appends events of these sizes; returns the cursors of the last `count`.
std::vector<int64_t> TailOf(const std::vector<size_t>& sizes, int64_t count) {
  const auto events = InMemoryEventLog::Create();
  for (const size_t size : sizes) {
    EXPECT_TRUE((*events)->Append("s", "", std::string(size, 'x')).ok());
  }
  const auto tail = ReadTail(**events, "s", count);
  EXPECT_TRUE(tail.ok()) << tail.status();
  std::vector<int64_t> cursors;
  for (const StoredEvent& event : *tail) cursors.push_back(event.cursor);
  return cursors;
}

TEST(ReadTail, IsTheNewestEventsOldestFirst) {
  EXPECT_THAT(TailOf({}, 3), IsEmpty());
  EXPECT_THAT(TailOf({1, 1}, 3), ElementsAre(1, 2));
  EXPECT_THAT(TailOf({1, 1, 1, 1}, 3), ElementsAre(2, 3, 4));
}

TEST(ReadTail, GoesOnWhereAPageEndsWithItsBytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  // A page holds the first four of these six; the bound allows three of 4 MiB.
  EXPECT_THAT(TailOf(std::vector<size_t>(6, 4 * kMiB), 6), ElementsAre(4, 5, 6));
  // 3 + 4 + 4 + 4 MiB is exactly the bound.
  EXPECT_THAT(TailOf({4 * kMiB, 3 * kMiB, 4 * kMiB, 4 * kMiB, 4 * kMiB}, 5),
              ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(TailOf({4 * kMiB, 3 * kMiB + 1, 4 * kMiB, 4 * kMiB, 4 * kMiB}, 5),
              ElementsAre(3, 4, 5));
  // No gaps: a small event before one that does not fit is omitted, too.
  EXPECT_THAT(TailOf({1, 4 * kMiB, 4 * kMiB, 4 * kMiB, 4 * kMiB}, 5), ElementsAre(3, 4, 5));
}

}  // namespace
}  // namespace freshet
