#include "controller/jobs/plan/evaluation_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);
constexpr absl::Duration kDeadline = absl::Minutes(1);

int64_t Due(const EvaluationRule& rule, int64_t committed, int64_t begun) {
  return FindDueEvaluation(rule, committed, begun).version.value_or(-1);
}

TEST(EvaluationRule, ZeroEveryAndTheLast) {
  const EvaluationRule rule{20, 45};
  EXPECT_EQ(Due(rule, -1, -1), -1);
  EXPECT_EQ(Due(rule, 0, -1), 0);
  EXPECT_EQ(Due(rule, 0, 0), -1);
  EXPECT_EQ(Due(rule, 19, 0), -1);
  EXPECT_EQ(Due(rule, 20, 0), 20);
  EXPECT_EQ(Due(rule, 33, 0), 20);
  EXPECT_EQ(Due(rule, 33, 20), -1);
  EXPECT_EQ(Due(rule, 45, 40), 45);
  EXPECT_EQ(Due(rule, 45, 45), -1);
}

TEST(EvaluationRule, CountsTheVersionsThatWerePassedOver) {
  const EvaluationRule rule{10, 100};
  EXPECT_EQ(FindDueEvaluation(rule, 10, 0).skipped, 0);
  EXPECT_EQ(FindDueEvaluation(rule, 35, 0).skipped, 2);   // 10 and 20
  EXPECT_EQ(FindDueEvaluation(rule, 35, -1).skipped, 3);  // 0 as well
  EXPECT_EQ(FindDueEvaluation(rule, 100, 90).skipped, 0);
  EXPECT_EQ(FindDueEvaluation(rule, 35, 12).skipped, 1);  // 20
}

TEST(NextEvaluation, IsThatOfTheSetFurthestBehind) {
  struct Case {
    const char* name;
    std::vector<int64_t> done;
    int64_t committed;
    int64_t set;  // -1: none
    int64_t version;
  };
  for (const Case& c : {
           Case{"the first of equals", {-1, -1}, 0, 0, 0},
           Case{"then the next", {0, -1}, 0, 1, 0},
           Case{"nothing is due", {0, 0}, 9, -1, 0},
           Case{"not before every set has its turn", {10, 0}, 20, 1, 10},
           Case{"version 0, though training went on", {0, -1}, 27, 1, 0},
           Case{"a newer version that is not due is not repeated", {0, 13}, 17, 0, 10},
           Case{"the last version of every set", {45, 40}, 45, 1, 45},
           Case{"all are done", {45, 45}, 45, -1, 0},
           Case{"no sets", {}, 45, -1, 0},
       }) {
    const auto next = FindNextEvaluation({10, 45}, c.committed, c.done);
    ASSERT_EQ(next.has_value(), c.set >= 0) << c.name;
    if (!next.has_value()) continue;
    EXPECT_EQ(next->set, static_cast<size_t>(c.set)) << c.name;
    EXPECT_EQ(next->version, c.version) << c.name;
  }
  EXPECT_EQ(FindNextEvaluation({10, 100}, 35, {30, 0})->skipped, 2) << "10 and 20";
}

EvaluatorSlot Slot(const std::string& worker, int64_t version) {
  return {worker, 1, "job/rollout/" + worker, {0, version}};
}

TEST(EvaluationTracker, WaitsForARolloutThatHasTheVersion) {
  EvaluationTracker tracker(kDeadline, 3);
  EXPECT_FALSE(tracker.Begin("job", "set", {0, 20}, {Slot("a", 19)}, kNow).has_value());
  EXPECT_TRUE(tracker.idle());
  const auto begun = tracker.Begin("job", "set", {0, 20}, {Slot("a", 22), Slot("b", 20)}, kNow);
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(begun->worker, "b") << "the version that is due, where there is one";
  EXPECT_FALSE(tracker.idle());
}

TEST(EvaluationTracker, TheNextSetGoesToTheWorkerThatHoldsTheVersion) {
  EvaluationTracker tracker(kDeadline, 3);
  ASSERT_EQ(tracker.Begin("job", "a", {0, 0}, {Slot("a", 1), Slot("b", 0)}, kNow)->worker, "b");
  tracker.End();
  const std::vector<EvaluatorSlot> later = {Slot("a", 23), Slot("b", 25)};
  EXPECT_EQ(tracker.Begin("job", "b", {1, 0}, later, kNow)->worker, "b");
  tracker.End();
  EXPECT_EQ(tracker.Begin("job", "a", {0, 20}, later, kNow)->worker, "a");
}

TEST(EvaluationTracker, AnotherWorkerTriesWhenTheFirstIsGone) {
  EvaluationTracker tracker(kDeadline, 3);
  const auto first = tracker.Begin("job", "set", {0, 0}, {Slot("a", 0), Slot("b", 1)}, kNow);
  const auto outcome = tracker.Check({Slot("b", 1)}, kNow);
  ASSERT_TRUE(outcome.retry.has_value());
  EXPECT_EQ(outcome.retry->worker, "b");
  EXPECT_NE(outcome.retry->id, first->id);
  EXPECT_EQ(tracker.running()->id, outcome.retry->id) << "the first try is not waited for any more";
  EXPECT_EQ(tracker.running()->begun, first->begun);
}

TEST(EvaluationTracker, AnotherWorkerTriesWhenTheFirstIsLateOrFails) {
  EvaluationTracker tracker(kDeadline, 3);
  const std::vector<EvaluatorSlot> slots = {Slot("a", 0), Slot("b", 0)};
  const auto first = tracker.Begin("job", "set", {0, 0}, slots, kNow);
  EXPECT_FALSE(tracker.Check(slots, kNow + kDeadline - absl::Seconds(1)).retry.has_value());
  const auto late = tracker.Check(slots, kNow + kDeadline);
  ASSERT_TRUE(late.retry.has_value());
  EXPECT_NE(late.retry->worker, first->worker);
  tracker.Fail("out of memory");
  const auto failed = tracker.Check(slots, kNow + kDeadline);
  ASSERT_TRUE(failed.retry.has_value());
  EXPECT_EQ(failed.retry->tries, 3);
}

TEST(EvaluationTracker, GivesUpAfterItsTries) {
  EvaluationTracker tracker(kDeadline, 2);
  const std::vector<EvaluatorSlot> slots = {Slot("a", 0)};
  ASSERT_TRUE(tracker.Begin("job", "set", {0, 0}, slots, kNow).has_value());
  tracker.Fail("first");
  const auto second = tracker.Check(slots, kNow);
  ASSERT_TRUE(second.retry.has_value()) << "the same worker where there is no other";
  tracker.Fail("out of memory");
  const auto outcome = tracker.Check(slots, kNow);
  EXPECT_THAT(outcome.given_up, HasSubstr("after 2 tries: out of memory"));
  EXPECT_TRUE(tracker.idle());
}

TEST(EvaluationTracker, WhatIsAnsweredIsNotTriedAgain) {
  EvaluationTracker tracker(kDeadline, 3);
  const std::vector<EvaluatorSlot> slots = {Slot("a", 0), Slot("b", 0)};
  const auto begun = tracker.Begin("job", "set", {0, 0}, slots, kNow);
  tracker.SetAnswered(kNow);
  for (const auto& present : {slots, std::vector<EvaluatorSlot>()}) {
    const auto outcome = tracker.Check(present, kNow + kDeadline - absl::Seconds(1));
    EXPECT_FALSE(outcome.retry.has_value());
    EXPECT_EQ(outcome.given_up, "");
  }
  EXPECT_EQ(tracker.running()->id, begun->id);
  tracker.Fail("the store lost it");
  EXPECT_TRUE(tracker.Check(slots, kNow).retry.has_value());
}

TEST(EvaluationTracker, ScoringHasADeadlineOfItsOwn) {
  EvaluationTracker tracker(kDeadline, 3);
  const std::vector<EvaluatorSlot> slots = {Slot("a", 0)};
  ASSERT_TRUE(tracker.Begin("job", "set", {0, 20}, {Slot("a", 20)}, kNow).has_value());
  const absl::Time answered = kNow + kDeadline - absl::Seconds(1);
  tracker.SetAnswered(answered);
  tracker.SetAnswered(answered + absl::Seconds(30));  // the first call counts
  const auto waits = tracker.Check(slots, answered + kDeadline - absl::Seconds(1));
  EXPECT_FALSE(waits.retry.has_value());
  EXPECT_EQ(waits.given_up, "");
  EXPECT_FALSE(tracker.idle());
  const auto late = tracker.Check(slots, answered + kDeadline);
  EXPECT_FALSE(late.retry.has_value());
  EXPECT_THAT(late.given_up, HasSubstr("version 20 was given up: scoring its rows took more than"));
  EXPECT_TRUE(tracker.idle());
}

TEST(EvaluationTracker, AnIdleOneIgnoresWhatItHears) {
  EvaluationTracker tracker(kDeadline, 3);
  tracker.Fail("who?");
  tracker.SetAnswered(kNow);
  const auto outcome = tracker.Check({Slot("a", 0)}, kNow);
  EXPECT_FALSE(outcome.retry.has_value());
  EXPECT_EQ(outcome.given_up, "");
  ASSERT_TRUE(tracker.Begin("job", "set", {0, 0}, {Slot("a", 0)}, kNow).has_value());
  EXPECT_FALSE(tracker.Check({Slot("a", 0)}, kNow).retry.has_value()) << "no old failure counts";
  EXPECT_FALSE(tracker.running()->answered);
}

}  // namespace
}  // namespace freshet
