#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_FAILURE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_FAILURE_CONTRACT_H_

// Contract tests: which lease failures count, when a group dies, and which group replaces it.

#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, AFailedLeaseGoesBackToTheQueueWithItsReason) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().FailLease(lease.token, "KeyError: 'answer'").ok());
  EXPECT_EQ(Stats().outstanding, 0);
  EXPECT_EQ(Stats().leases_expired, 0);
  const auto rows = Ledger(LedgerEvent::kRequeued);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].reason, "lease_failed: KeyError: 'answer'");
  const GroupLease next = Lease(0, 1, "w1")[0];
  EXPECT_EQ(next.ordinal, lease.ordinal);
  EXPECT_EQ(next.attempt, lease.attempt + 1);
  EXPECT_EQ(store().FailLease(lease.token, "again").code(), kPrecondition);
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), kPrecondition);
  Finish(next, 0);
  EXPECT_EQ(store().FailLease(next.token, "too late").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, AFailedLeaseKeepsFinishedSamplesAndFormerPartials) {
  options_.group_size = 3;
  PutPrompts(1);
  const GroupLease first = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(first.token, 0, ResponseAt(0)).ok());
  ASSERT_TRUE(store().ReturnLease(first.token, {1}, {ResponseAt(0, 2)}).ok());
  ASSERT_TRUE(store().FailLease(Lease(0, 1, "w1")[0].token, "crash").ok());
  const GroupLease next = Lease(0, 1, "w2")[0];
  EXPECT_EQ(next.attempt, first.attempt);
  EXPECT_THAT(next.missing, ElementsAre(1, 2));
  EXPECT_THAT(next.partials[0].response_ids, SizeIs(2));
  EXPECT_THAT(Ledger(LedgerEvent::kRequeued), IsEmpty());
}

TEST_P(TrajectoryStoreContract, AGroupWhoseLeasesFailIsDeadWithTheLastReason) {
  options_.max_lease_failures = 3;
  PutPrompts(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Now(GroupState::kDead), 0);
    ASSERT_TRUE(store().FailLease(Lease(0, 1)[0].token, StrCat("raise ", i)).ok());
  }
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Stats().outstanding, 0);
  EXPECT_EQ(Stats().running, 0);
  EXPECT_EQ(Stats().queued_prompts, 0);
  EXPECT_THAT(Ask(0, 1).leases, IsEmpty());
  const auto dead = Ledger(LedgerEvent::kDead);
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].uid, "job/0/2/0");
  EXPECT_EQ(dead[0].reason, "lease_failed: 3 times: raise 2");
}

TEST_P(TrajectoryStoreContract, ExpiredAndRevokedLeasesCountAsFailures) {
  options_.max_lease_failures = 3;
  PutPrompts(1);
  Lease(0, 1, "w0#1");
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  Lease(0, 1, "w1#1");
  ASSERT_EQ(*store().RevokeWorker("w1#1"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  Lease(0, 1, "w2#1");
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Stats().leases_expired, 3);
  EXPECT_EQ(Ledger(LedgerEvent::kDead)[0].reason, "lease_failed: 3 times: lease of w2#1 expired");
}

TEST_P(TrajectoryStoreContract, AGroupThatKillsItsWorkersIsDeadWithTheWorkersName) {
  options_.max_lease_failures = 2;
  PutPrompts(2);
  for (const std::string worker : {"w0#1", "w0#2"}) {
    EXPECT_EQ(Lease(0, 1, worker)[0].ordinal, 0);
    ASSERT_EQ(*store().RevokeWorker(worker), 1);
  }
  EXPECT_EQ(Ledger(LedgerEvent::kDead)[0].reason, "lease_failed: 2 times: worker w0#2 was lost");
  EXPECT_EQ(Lease(0, 1, "w0#3")[0].ordinal, 1);
}

TEST_P(TrajectoryStoreContract, LossesCountOnlyInARow) {
  options_.max_lease_failures = 2;
  PutPrompts(2);
  const GroupLease first = Lease(0, 1, "w0#1")[0];
  Lease(0, 1, "w1#1");
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 1);
  ASSERT_EQ(*store().RevokeWorker("w1#1"), 1);  // this loss does not involve the first group
  EXPECT_EQ(Lease(0, 1, "w0#2")[0].ordinal, first.ordinal);
  ASSERT_EQ(*store().RevokeWorker("w0#2"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  EXPECT_EQ(Lease(0, 1, "w0#3")[0].ordinal, first.ordinal);
  ASSERT_EQ(*store().RevokeWorker("w0#3"), 1);
  EXPECT_EQ(Ledger(LedgerEvent::kDead).at(0).reason, "lease_failed: 2 times: worker w0#3 was lost");
}

TEST_P(TrajectoryStoreContract, AWorkerThatIsLostWithManyGroupsIsOneLoss) {
  options_.max_lease_failures = 2;
  options_.group_size = 3;
  PutPrompts(3);
  const auto leases = Lease(0, 3, "w0#1");
  ASSERT_TRUE(store().PutSample(leases[1].token, 0, ResponseAt(0)).ok());
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 3);
  const auto again = Lease(0, 3, "w1#1");
  EXPECT_EQ(again[0].ordinal, leases[1].ordinal) << "the one with kept tokens";
  ASSERT_TRUE(store().PutSample(again[1].token, 0, ResponseAt(0)).ok());
  ASSERT_EQ(*store().RevokeWorker("w1#1"), 3);
  // Group 0 produced a sample under its second lease, group 1 under its first, group 2 never.
  const auto dead = Ledger(LedgerEvent::kDead);
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].prompt, leases[2].ordinal);
}

TEST_P(TrajectoryStoreContract, LeasesOfOneWorkerThatExpireApartAreOneLoss) {
  options_.max_lease_failures = 2;
  PutPrompts(2);
  const GroupLease first = Lease(0, 1, "w0#1")[0];
  clock_.Advance(absl::Seconds(5));
  Lease(0, 1, "w0#1");
  clock_.Advance(options_.lease_ttl - absl::Seconds(5));
  ASSERT_EQ(*store().Sweep(), 1);
  clock_.Advance(absl::Seconds(5));
  ASSERT_EQ(*store().Sweep(), 1);
  EXPECT_EQ(Lease(0, 1, "w0#2")[0].ordinal, first.ordinal);
  ASSERT_EQ(*store().RevokeWorker("w0#2"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 1) << "the first one was there at both losses";
}

TEST_P(TrajectoryStoreContract, AReturnedLeaseIsNoFailureAndKeepsItsPlace) {
  options_.max_lease_failures = 1;
  options_.max_hand_backs = 1;
  PutPrompts(1);
  for (int i = 0; i < 10; ++i) {
    const GroupLease lease = Lease(0, 1)[0];
    EXPECT_EQ(lease.ordinal, 0);
    ASSERT_TRUE(store().ReturnLease(lease.token, {}, {}).ok());
    PassLease();
  }
  EXPECT_EQ(Now(GroupState::kDead), 0);
  EXPECT_EQ(Lease(0, 1)[0].attempt, 10);
}

TEST_P(TrajectoryStoreContract, AHandedBackLeaseGoesBackToTheQueueWithItsReason) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().HandBackLease(lease.token, "environment game: gone").ok());
  EXPECT_EQ(Stats().outstanding, 0);
  const auto rows = Ledger(LedgerEvent::kRequeued);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].reason, "handed_back: environment game: gone");
  EXPECT_EQ(store().HandBackLease(lease.token, "again").code(), kPrecondition);
  EXPECT_EQ(Lease(0, 1)[0].attempt, lease.attempt + 1);
}

TEST_P(TrajectoryStoreContract, HandBacksOfAShortOutageCountOnceAndKeepThePlace) {
  options_.max_lease_failures = 1;
  options_.max_hand_backs = 2;
  PutPrompts(3);
  for (int second = 0; second < 29; ++second) {
    const GroupLease lease = Lease(0, 1)[0];
    EXPECT_EQ(lease.ordinal, 0);
    ASSERT_TRUE(store().HandBackLease(lease.token, "gone").ok());
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Now(GroupState::kDead), 0);
}

TEST_P(TrajectoryStoreContract, AGroupThatIsHandedBackAgainGoesBehindWhatWaits) {
  PutPrompts(3);
  EXPECT_TRUE(store().HandBackLease(Lease(0, 1)[0].token, "gone").ok());
  PassLease();
  EXPECT_TRUE(store().HandBackLease(Lease(0, 1)[0].token, "gone").ok());
  PutPrompts(2);                                                        // queued behind it
  ASSERT_TRUE(store().ReturnLease(Lease(0, 1)[0].token, {}, {}).ok());  // keeps its place
  std::vector<int64_t> ordinals;
  for (const GroupLease& lease : Lease(0, 4)) ordinals.push_back(lease.ordinal);
  EXPECT_THAT(ordinals, ElementsAre(1, 2, 0, 3));
}

TEST_P(TrajectoryStoreContract, AGroupThatIsHandedBackForEverIsDeadWithTheLastReason) {
  options_.max_hand_backs = 3;
  PutPrompts(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Now(GroupState::kDead), 0);
    ASSERT_TRUE(store().HandBackLease(Lease(0, 1)[0].token, StrCat("no answer ", i)).ok());
    PassLease();
  }
  EXPECT_EQ(Ledger(LedgerEvent::kDead).at(0).reason, "handed_back: 3 times: no answer 2");
  EXPECT_EQ(store().DeadLetters(1)->at(0).reason, "handed_back: 3 times: no answer 2");
  EXPECT_EQ(Stats().queued_prompts, 0);
}

TEST_P(TrajectoryStoreContract, LossesOfAnyCauseEndAGroupToo) {
  options_.max_hand_backs = 3;
  PutPrompts(2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Now(GroupState::kDead), 0);
    EXPECT_EQ(Lease(0, 1, StrCat("w0#", i))[0].ordinal, 0);
    Lease(0, 1, StrCat("w1#", i));
    ASSERT_EQ(*store().RevokeWorker(StrCat("w0#", i)), 1);
    // Another worker, which does not hold the group, is lost in between.
    ASSERT_EQ(*store().RevokeWorker(StrCat("w1#", i)), 1);
    PassLease();
  }
  EXPECT_EQ(Ledger(LedgerEvent::kDead).at(0).reason, "handed_back: 3 times: worker w0#2 was lost");
}

TEST_P(TrajectoryStoreContract, AGroupWithKeptTokensIsHandedBackABoundedNumberOfTimes) {
  options_.staleness.max = 0;
  options_.max_hand_backs = 2;
  PutPrompts(3);
  const auto leases = Lease(0, 2);
  ASSERT_TRUE(store().PutSample(leases[0].token, 0, ResponseAt(0)).ok());
  ASSERT_TRUE(store().HandBackLease(leases[0].token, "gone").ok());  // it has a finished sample
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Now(GroupState::kDead), 0);
    ASSERT_EQ(*store().RenewLeases("w0", {leases[1].token}), std::vector<int64_t>{});
    const GroupLease again = Lease(0, 1)[0];
    EXPECT_EQ(again.ordinal, 0) << "it holds its slot";
    ASSERT_TRUE(store().HandBackLease(again.token, "gone").ok());
    clock_.Advance(options_.lease_ttl - absl::Seconds(1));
    ASSERT_EQ(*store().RenewLeases("w0", {leases[1].token}), std::vector<int64_t>{});
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Lease(0, 1)[0].ordinal, 2) << "another one takes its slot";
}

TEST_P(TrajectoryStoreContract, ASampleMakesHandBacksAndLossesCountAnew) {
  options_.group_size = 3;
  options_.max_hand_backs = 2;
  options_.max_lease_failures = 2;
  PutPrompts(1);
  for (int32_t index = 0; index < 2; ++index) {
    ASSERT_TRUE(store().HandBackLease(Lease(0, 1)[0].token, "gone").ok());
    PassLease();
    const GroupLease lease = Lease(0, 1)[0];
    ASSERT_TRUE(store().PutSample(lease.token, index, ResponseAt(0)).ok());
    ASSERT_TRUE(store().HandBackLease(lease.token, "gone").ok());
    PassLease();
  }
  Lease(0, 1, "w1#1");
  ASSERT_EQ(*store().RevokeWorker("w1#1"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  Lease(0, 1, "w1#2");
  ASSERT_EQ(*store().RevokeWorker("w1#2"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 1);
}

// A prompt that hangs its environment must not block a step, even at eta = 0.
TEST_P(TrajectoryStoreContract, APromptThatIsAlwaysHandedBackHoldsUpNoStep) {
  options_.staleness.max = 0;
  options_.max_hand_backs = 3;
  OpenEpoch();
  PutPrompts(10);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 1; step <= 4; ++step) {
    std::vector<int64_t> finished;
    for (int tries = 0; tries < 10 && finished.size() < 2; ++tries) {
      const GroupLease lease = Lease(step - 1, 1)[0];
      if (lease.ordinal == 1) {
        ASSERT_TRUE(store().HandBackLease(lease.token, "no answer in 5s").ok());
        PassLease();
        continue;
      }
      Finish(lease, step - 1);
      finished.push_back(lease.ordinal);
    }
    EXPECT_THAT(Ask(step - 1, 1).leases, IsEmpty()) << "B groups a version and no more";
    ScoreAll();
    const NextBatchReply batch = NextBatch(step);
    ASSERT_TRUE(batch.ready) << batch.reason;
    steps.push_back(Ordinals(batch));
    ASSERT_TRUE(store().CommitStep(epoch_, step, Ordinals(batch), HashOf(step)).ok());
  }
  using Batch = std::vector<int64_t>;
  EXPECT_THAT(steps, ElementsAre(Batch{0, 2}, Batch{3, 4}, Batch{5, 6}, Batch{7, 8}));
  Finish(Lease(4, 1)[0], 4);
  ASSERT_TRUE(store().HandBackLease(Lease(4, 1)[0].token, "no answer in 5s").ok());
  EXPECT_EQ(Now(GroupState::kDead), 1);
}

TEST_P(TrajectoryStoreContract, ALeaseThatGaveASampleIsNoFailure) {
  options_.group_size = 4;
  options_.max_lease_failures = 1;
  PutPrompts(1);
  const GroupLease failed = Lease(0, 1, "w0#1")[0];
  ASSERT_TRUE(store().PutSample(failed.token, 0, ResponseAt(0)).ok());
  ASSERT_TRUE(store().FailLease(failed.token, "raise").ok());
  const GroupLease expired = Lease(0, 1, "w0#1")[0];
  ASSERT_TRUE(store().PutSample(expired.token, 2, ResponseAt(0)).ok());
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  const GroupLease revoked = Lease(0, 1, "w0#1")[0];
  ASSERT_TRUE(store().PutSample(revoked.token, 1, ResponseAt(0)).ok());
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  // Samples of earlier leases do not excuse a failure of this one.
  ASSERT_TRUE(store().FailLease(Lease(0, 1)[0].token, "raise").ok());
  EXPECT_EQ(Now(GroupState::kDead), 1);
  const auto dead = Ledger(LedgerEvent::kDead);
  ASSERT_THAT(dead, SizeIs(3));  // one row per finished sample
  EXPECT_EQ(Stats().discarded_samples, 3);
  EXPECT_THAT(Rows(Task::kScore), IsEmpty());
}

TEST_P(TrajectoryStoreContract, FailuresAreCountedAcrossAttempts) {
  options_.max_lease_failures = 2;
  PutPrompts(1);
  ASSERT_TRUE(store().FailLease(Lease(0, 1)[0].token, "raise").ok());
  ASSERT_TRUE(store().ReturnLease(Lease(0, 1)[0].token, {}, {}).ok());
  ASSERT_TRUE(store().FailLease(Lease(0, 1)[0].token, "raise").ok());
  EXPECT_EQ(Now(GroupState::kDead), 1);
}

TEST_P(TrajectoryStoreContract, AScoredRowOfADyingGroupIsForgotten) {
  options_.max_lease_failures = 1;
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
  ASSERT_TRUE(store().FailLease(lease.token, "raise").ok());
  const auto rows = Rows(Task::kScore);
  ASSERT_THAT(rows, SizeIs(1));
  ASSERT_TRUE(store().FailLease(Lease(0, 1)[0].token, "raise").ok());
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, UnderWaitTheStepGoesOnWithAnotherGroupInTheDeadOnesPlace) {
  options_.staleness.max = 0;
  options_.last_step = 1;
  options_.max_lease_failures = 2;
  OpenEpoch();
  PutPrompts(3);
  const auto leases = Lease(0, 2);
  Finish(leases[1], 0);
  ScoreAll();
  ASSERT_TRUE(store().FailLease(leases[0].token, "raise").ok());
  EXPECT_FALSE(NextBatch(1).ready);
  const GroupLease again = Lease(0, 1)[0];
  EXPECT_EQ(again.ordinal, leases[0].ordinal);
  EXPECT_THAT(Ask(0, 1).leases, IsEmpty());  // no more than B groups
  const uint64_t admission = store().ChangeCount(Topic::kAdmission);
  const uint64_t batch = store().ChangeCount(Topic::kBatch);
  ASSERT_TRUE(store().FailLease(again.token, "raise").ok());
  EXPECT_GT(store().ChangeCount(Topic::kAdmission), admission);
  EXPECT_GT(store().ChangeCount(Topic::kBatch), batch);
  Finish(Lease(0, 1)[0], 0);
  ScoreAll();
  const NextBatchReply step = NextBatch(1);
  ASSERT_TRUE(step.ready) << step.reason;
  EXPECT_EQ(Ordinals(step), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(store().CommitStep(epoch_, 1, Ordinals(step), "hash").ok());
}

TEST_P(TrajectoryStoreContract, ADeadGroupsPromptNeedNotComeAgain) {
  options_.max_lease_failures = 1;
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  ASSERT_TRUE(store().FailLease(leases[0].token, "raise").ok());
  EXPECT_EQ(store().Cursor()->low_water, 1);
}

TEST_P(TrajectoryStoreContract, DeadLettersComeNewestFirstWithTheirReasons) {
  options_.max_lease_failures = 1;
  options_.max_row_failures = 1;
  PutPrompts(3);
  const auto leases = Lease(0, 3);
  EXPECT_THAT(*store().DeadLetters(10), IsEmpty());
  Finish(leases[0], 0);
  ASSERT_TRUE(store().FailRow(Task::kScore, Rows(Task::kScore)[0].token, "no route").ok());
  const absl::Time first = clock_.Now();
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(store().FailLease(leases[1].token, std::string(400, 'x')).ok());
  const auto letters = *store().DeadLetters(10);
  ASSERT_THAT(letters, SizeIs(2));
  EXPECT_EQ(letters[0].ordinal, 1);
  EXPECT_EQ(letters[0].reason.size(), 300U);
  EXPECT_THAT(letters[0].reason, testing::StartsWith("lease_failed: 1 times: xxx"));
  EXPECT_EQ(letters[1].time, first);
  EXPECT_EQ(letters[1].ordinal, 0);
  EXPECT_EQ(letters[1].attempt, 0);
  EXPECT_EQ(letters[1].reason, "score_failed: 1 times: no route");
  EXPECT_THAT(*store().DeadLetters(1), SizeIs(1));
  EXPECT_EQ(store().DeadLetters(0).status().code(), kInvalid);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_FAILURE_CONTRACT_H_
