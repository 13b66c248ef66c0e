#include "controller/jobs/plan/scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

QueuedJob Job(const std::string& id, int priority, int created, const std::string& pool = "default",
              const std::string& trainer = "") {
  return {id, priority, absl::FromUnixSeconds(created), pool, "native", trainer};
}

ScheduleInput OneOfEach(std::vector<QueuedJob> queue) {
  ScheduleInput input;
  input.queue = std::move(queue);
  input.trainers = {{"trainer-0", true, ""}};
  input.pools = {{"default", {{"native", 2}}, ""}};
  return input;
}

std::string Started(const Schedule& schedule) {
  std::string text;
  for (const JobStart& start : schedule.starts) {
    text += start.job + "@" + start.trainer + "," + start.pool + " ";
  }
  return text;
}

TEST(Scheduler, StartsTheJobThatCanStart) {
  const Schedule schedule = ScheduleJobs(OneOfEach({Job("a", 0, 1)}));
  EXPECT_EQ(Started(schedule), "a@trainer-0,default ");
  EXPECT_TRUE(schedule.waits.empty());
}

TEST(Scheduler, PriorityComesBeforeAge) {
  const Schedule schedule =
      ScheduleJobs(OneOfEach({Job("old", 0, 1), Job("urgent", 5, 9), Job("low", -5, 0)}));
  EXPECT_EQ(Started(schedule), "urgent@trainer-0,default ");
  ASSERT_EQ(schedule.waits.size(), 2U);
  EXPECT_EQ(schedule.waits[0].job, "old");
  EXPECT_EQ(schedule.waits[0].reason, "waits for a trainer: 0 of 1 free, taken by urgent");
}

TEST(Scheduler, TheOlderOfEqualsComesFirst) {
  EXPECT_EQ(Started(ScheduleJobs(OneOfEach({Job("b", 0, 2), Job("a", 0, 1)}))),
            "a@trainer-0,default ");
}

TEST(Scheduler, SaysThatThereIsNoTrainer) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1)});
  input.trainers = {{"trainer-0", false, ""}};
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason, "waits for a trainer: 0 of 1 ready");
  input.trainers.clear();
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason, "waits for a trainer: 0 of 1 ready");
}

TEST(Scheduler, SaysThatThereAreNoRollouts) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1)});
  input.pools = {{"default", {}, ""}};
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason, "waits for rollouts: 0 ready in pool default");
}

TEST(Scheduler, AJobStartsOnlyWithRolloutsOfItsEngine) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1)});
  input.queue[0].engine = "vllm";
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason,
            "needs a rollout with engine vllm: pool default has 2 with engine native");
  input.pools[0].ready.clear();
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason,
            "needs a rollout with engine vllm: pool default has none that is ready");
  input.pools[0].ready = {{"native", 2}, {"vllm", 1}};
  EXPECT_EQ(Started(ScheduleJobs(input)), "a@trainer-0,default ");
  input.pools[0].job = "other";
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason,
            "waits for pool default: its 1 rollouts work for other");
}

TEST(Scheduler, SaysWhoHasThePool) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1)});
  input.pools = {{"default", {{"native", 2}}, "other"}};
  EXPECT_EQ(ScheduleJobs(input).waits[0].reason,
            "waits for pool default: its 2 rollouts work for other");
}

TEST(Scheduler, TwoJobsRunBesideEachOtherOnWorkersOfTheirOwn) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1, "x"), Job("b", 0, 2, "y")});
  input.trainers = {{"trainer-1", true, ""}, {"trainer-0", true, ""}};
  input.pools = {{"x", {{"native", 1}}, ""}, {"y", {{"native", 1}}, ""}};
  EXPECT_EQ(Started(ScheduleJobs(input)), "a@trainer-0,x b@trainer-1,y ");
}

TEST(Scheduler, AJobThatWaitsForItsPoolDoesNotHoldUpOneThatCanRun) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1, "x"), Job("b", 0, 2, "y")});
  input.trainers = {{"trainer-0", true, ""}, {"trainer-1", true, ""}};
  input.pools = {{"x", {}, ""}, {"y", {{"native", 1}}, ""}};
  EXPECT_EQ(Started(ScheduleJobs(input)), "b@trainer-1,y ");
}

TEST(Scheduler, WhatTheFirstJobWaitsWithIsNotGivenToLaterOnes) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1, "x"), Job("b", 0, 2, "y")});
  input.pools = {{"x", {}, ""}, {"y", {{"native", 1}}, ""}};
  const Schedule schedule = ScheduleJobs(input);
  EXPECT_TRUE(schedule.starts.empty()) << "one trainer, kept for a";
}

TEST(Scheduler, AResumedJobGoesBackToTheTrainerThatHasItsFiles) {
  ScheduleInput input = OneOfEach({Job("a", 0, 1, "default", "trainer-1")});
  EXPECT_THAT(ScheduleJobs(input).waits[0].reason, HasSubstr("trainer-1, which has its files"));
  input.trainers.push_back({"trainer-1", true, ""});
  EXPECT_EQ(Started(ScheduleJobs(input)), "a@trainer-1,default ");
}

}  // namespace
}  // namespace freshet
