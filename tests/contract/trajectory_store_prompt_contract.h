#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PROMPT_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PROMPT_CONTRACT_H_

// Contract tests: prompts and their admission, the cursor, and waiting for changes.

#include <string>
#include <thread>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, PutPromptsIgnoresOrdinalsBelowTheHighWaterMark) {
  ASSERT_EQ(store().PutPrompts({PromptAt(0), PromptAt(1)})->high_water, 1);
  const auto again = store().PutPrompts({PromptAt(0), PromptAt(1), PromptAt(2)});
  EXPECT_EQ(again->accepted, 3);
  EXPECT_EQ(again->high_water, 2);
  EXPECT_EQ(Stats().queued_prompts, 3);
}

TEST_P(TrajectoryStoreContract, PutPromptsTakesAPrefixAndSaysFull) {
  options_.max_queued_prompts = 2;
  const auto reply = store().PutPrompts({PromptAt(0), PromptAt(1), PromptAt(2)});
  EXPECT_EQ(reply->accepted, 2);
  EXPECT_EQ(reply->high_water, 1);
  EXPECT_TRUE(reply->full);
}

TEST_P(TrajectoryStoreContract, PutPromptsTakesMoreAfterALease) {
  options_.max_queued_prompts = 1;
  PutPrompts(1);
  Lease(0, 1);
  const auto reply = store().PutPrompts({PromptAt(1)});
  EXPECT_EQ(reply->accepted, 1);
}

TEST_P(TrajectoryStoreContract, PutPromptsRefusesOrdinalsThatDoNotGrow) {
  EXPECT_EQ(store().PutPrompts({PromptAt(3), PromptAt(3)}).status().code(), kInvalid);
  EXPECT_EQ(store().PutPrompts({PromptAt(-1)}).status().code(), kInvalid);
  EXPECT_EQ(Stats().queued_prompts, 0);
}

TEST_P(TrajectoryStoreContract, PutPromptsRefusesALeapOfOrdinals) {
  const int64_t leap = int64_t{1} << 20;
  EXPECT_TRUE(store().PutPrompts({PromptAt(5), PromptAt(5 + leap)}).ok());
  EXPECT_EQ(store().PutPrompts({PromptAt(5 + 2 * leap + 1)}).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, PutPromptsRefusesANegativeAttempt) {
  Prompt prompt = PromptAt(0);
  prompt.first_attempt = -1;
  EXPECT_EQ(store().PutPrompts({prompt}).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, LeaseCarriesPromptAttemptMissingAndExpiry) {
  Prompt prompt = PromptAt(4);
  prompt.first_attempt = 3;
  ASSERT_TRUE(store().PutPrompts({prompt}).ok());
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_EQ(lease.ordinal, 4);
  EXPECT_EQ(lease.attempt, 3);
  EXPECT_EQ(lease.prompt.prompt_ids, prompt.prompt_ids);
  EXPECT_EQ(lease.prompt.attributes, prompt.attributes);
  EXPECT_THAT(lease.missing, ElementsAre(0, 1));
  EXPECT_THAT(lease.partials, SizeIs(2));
  EXPECT_EQ(lease.expires, clock_.Now() + options_.lease_ttl);
}

TEST_P(TrajectoryStoreContract, FencingTokensGrow) {
  PutPrompts(3);
  const auto leases = Lease(0, 3);
  EXPECT_LT(leases[0].token, leases[1].token);
  EXPECT_LT(leases[1].token, leases[2].token);
}

TEST_P(TrajectoryStoreContract, LeasesQueuedPromptsByOrdinal) {
  PutPrompts(3);
  const auto leases = Lease(0, 2);
  EXPECT_EQ(leases[0].ordinal, 0);
  EXPECT_EQ(leases[1].ordinal, 1);
}

TEST_P(TrajectoryStoreContract, RepeatedRequestGetsTheSameLeases) {
  PutPrompts(4);
  const LeaseReply first = Ask(0, 2, "w0", "a");
  const LeaseReply again = Ask(0, 2, "w0", "a");
  ASSERT_THAT(again.leases, SizeIs(2));
  EXPECT_EQ(again.leases[0].token, first.leases[0].token);
  EXPECT_EQ(again.leases[1].token, first.leases[1].token);
  EXPECT_EQ(Stats().outstanding, 2);
}

TEST_P(TrajectoryStoreContract, RequestIdsAreKeptApartByWorkerAndId) {
  PutPrompts(4);
  const LeaseReply a = Ask(0, 1, "w0", "a");
  EXPECT_NE(Ask(0, 1, "w1", "a").leases[0].token, a.leases[0].token);
  EXPECT_NE(Ask(0, 1, "w0", "b").leases[0].token, a.leases[0].token);
}

TEST_P(TrajectoryStoreContract, LeaseRefusesANamelessWorkerAndNegativeNumbers) {
  EXPECT_EQ(store().LeasePrompts({"", "a", {0, 0}, 1}).status().code(), kInvalid);
  EXPECT_EQ(store().LeasePrompts({"w0", "a", {0, 0}, -1}).status().code(), kInvalid);
  EXPECT_EQ(store().LeasePrompts({"w0", "a", {0, -1}, 1}).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, LeaseGivesAReasonEvenWhenServed) {
  PutPrompts(1);
  EXPECT_THAT(Ask(0, 1).reason, HasSubstr("request served"));
  EXPECT_THAT(Ask(0, 1).reason, HasSubstr("prompt queue empty"));
}

TEST_P(TrajectoryStoreContract, AdmissionStopsAtTheStalenessBound) {
  PutPrompts(10);
  const LeaseReply reply = Ask(0, 10);
  EXPECT_THAT(reply.leases, SizeIs(4));  // (eta + 1) * B = 2 * 2
  EXPECT_THAT(reply.reason, HasSubstr("staleness bound"));
}

TEST_P(TrajectoryStoreContract, ALaggingEngineGetsOnlyItsVersionsShare) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(10);
  EXPECT_THAT(Ask(0, 10, "late").leases, SizeIs(2));  // (1 + 1 - 1) * 2
  EXPECT_THAT(Ask(1, 10, "new").leases, SizeIs(2));   // 4 - 2 outstanding
}

TEST_P(TrajectoryStoreContract, AnEngineOfAnotherLineageOrAheadGetsNothing) {
  lineage_ = 2;
  origin_.policy = {2, 5};
  origin_.resumed = true;
  PutPrompts(1);
  EXPECT_THAT(Ask(6, 1).reason, HasSubstr("ahead"));
  lineage_ = 1;
  EXPECT_THAT(Ask(5, 1).reason, HasSubstr("older lineage"));
  EXPECT_EQ(Stats().outstanding, 0);
}

TEST_P(TrajectoryStoreContract, AdmissionStopsAtTheInFlightLimit) {
  options_.staleness.max_in_flight = 1;
  PutPrompts(2);
  const LeaseReply reply = Ask(0, 2);
  ASSERT_THAT(reply.leases, SizeIs(1));
  EXPECT_THAT(reply.reason, HasSubstr("in-flight"));
  Finish(reply.leases[0], 0);
  EXPECT_THAT(Ask(0, 2).leases, SizeIs(1));
}

TEST_P(TrajectoryStoreContract, NoLeaseBeyondTheLastStep) {
  options_.last_step = 1;
  PutPrompts(4);
  const LeaseReply reply = Ask(0, 4);
  EXPECT_THAT(reply.leases, SizeIs(2));  // last_step * B
  EXPECT_THAT(reply.reason, HasSubstr("last step"));
}

TEST_P(TrajectoryStoreContract, AFullStoreSaysSo) {
  options_.capacity_groups = 4;
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(4);
  const LeaseReply reply = Ask(1, 4);
  EXPECT_THAT(reply.leases, SizeIs(2));  // 2 trained + 2 outstanding = capacity
  EXPECT_THAT(reply.reason, HasSubstr("store full"));
  EXPECT_TRUE(NextBatch(2).store_full);
}

TEST_P(TrajectoryStoreContract, CursorSkipsOnlyPromptsThatEnded) {
  OpenEpoch();
  EXPECT_EQ(store().Cursor()->low_water, 0);
  PutPrompts(6);
  EXPECT_EQ(store().Cursor()->low_water, 0);
  const auto leases = Lease(0, 4);  // 0 and 2 stay unfinished
  Finish(leases[1], 0);
  Finish(leases[3], 0);
  ScoreAll();
  Train(1);
  const PromptCursor cursor = *store().Cursor();
  EXPECT_EQ(cursor.low_water, 0);
  EXPECT_THAT(cursor.above, ElementsAre(1, 3));
}

TEST_P(TrajectoryStoreContract, CursorOfAResumedStoreRemembersWhatEndedBefore) {
  origin_.resumed = true;
  origin_.policy = {0, 0};
  origin_.cursor = {5, {7, 90}};
  EXPECT_THAT(store().Cursor()->above, ElementsAre(7, 90));
  EXPECT_EQ(store().Cursor()->low_water, 5);
  ASSERT_EQ(store()
                .PutPrompts({PromptAt(4), PromptAt(5), PromptAt(6), PromptAt(7), PromptAt(8)})
                ->accepted,
            5);
  EXPECT_EQ(Stats().queued_prompts, 3);  // 5, 6 and 8
  EXPECT_EQ(store().Cursor()->low_water, 5);
  EXPECT_THAT(store().Cursor()->above, ElementsAre(7, 90));
}

TEST_P(TrajectoryStoreContract, ChangeCountsGrowWhenAnswersMayChange) {
  const uint64_t admission = store().ChangeCount(Topic::kAdmission);
  PutPrompts(1);
  EXPECT_GT(store().ChangeCount(Topic::kAdmission), admission);
  const uint64_t prompts = store().ChangeCount(Topic::kPrompts);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_GT(store().ChangeCount(Topic::kPrompts), prompts);
  const uint64_t rows = store().ChangeCount(Topic::kRows);
  Finish(lease, 0);
  EXPECT_GT(store().ChangeCount(Topic::kRows), rows);
  const uint64_t batch = store().ChangeCount(Topic::kBatch);
  ScoreAll();
  EXPECT_GT(store().ChangeCount(Topic::kBatch), batch);
  const uint64_t space = store().ChangeCount(Topic::kSpace);
  OpenEpoch();
  ASSERT_TRUE(store().MarkDurable(epoch_, 0, "sha").ok());
  EXPECT_GT(store().ChangeCount(Topic::kSpace), space);
}

TEST_P(TrajectoryStoreContract, AwaitChangeReturnsOnAChangeAndOnClose) {
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  EXPECT_EQ(store().AwaitChange(Topic::kAdmission, seen, absl::ZeroDuration()), seen);
  std::thread writer([this] { (void)store().PutPrompts({PromptAt(0)}); });
  EXPECT_GT(store().AwaitChange(Topic::kAdmission, seen, absl::Seconds(10)), seen);
  writer.join();
  const uint64_t batch = store().ChangeCount(Topic::kBatch);
  std::thread closer([this] { store().Close(); });
  EXPECT_EQ(store().AwaitChange(Topic::kBatch, batch, absl::InfiniteDuration()), batch);
  closer.join();
  EXPECT_TRUE(store().PutPrompts({PromptAt(1)}).ok());
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PROMPT_CONTRACT_H_
