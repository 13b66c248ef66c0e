#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_REVOKE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_REVOKE_CONTRACT_H_

// Contract tests: revoking a lost worker ends its leases and refuses its name.

#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, RevokeReturnsTheWorkersGroupsAndNoOthers) {
  PutPrompts(3);
  const GroupLease kept = Lease(0, 1, "w0#1")[0];
  const GroupLease lost = Lease(0, 1, "w0#1")[0];
  const GroupLease other = Lease(0, 1, "w1#1")[0];
  ASSERT_TRUE(store().PutSample(kept.token, 0, ResponseAt(0)).ok());
  EXPECT_EQ(*store().RevokeWorker("w0#1"), 2);
  EXPECT_EQ(Now(GroupState::kLeased), 1);
  EXPECT_EQ(Now(GroupState::kRequeued), 2);
  EXPECT_EQ(Stats().leases_expired, 2);
  const auto rows = Ledger(LedgerEvent::kRequeued);
  ASSERT_THAT(rows, SizeIs(1));  // the group with a finished sample keeps its uids
  EXPECT_EQ(rows[0].prompt, lost.ordinal);
  EXPECT_EQ(rows[0].reason, "worker_lost");
  EXPECT_EQ(store().PutSample(kept.token, 1, ResponseAt(0)).code(), kPrecondition);
  EXPECT_TRUE(store().PutSample(kept.token, 0, ResponseAt(0)).ok());  // repeats an accepted put
  Finish(other, 0);
}

TEST_P(TrajectoryStoreContract, ARevokedNameIsRefused) {
  PutPrompts(2);
  const GroupLease lease = Lease(0, 1, "w0#1")[0];
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 1);
  EXPECT_EQ(store().LeasePrompts({"w0#1", "", {0, 0}, 1}).status().code(), kPrecondition);
  EXPECT_EQ(store().LeaseRows(Task::kScore, "w0#1", 1).status().code(), kPrecondition);
  EXPECT_EQ(store().RenewLeases("w0#1", {lease.token}).status().code(), kPrecondition);
  EXPECT_THAT(Ask(0, 1, "w0#2").leases, SizeIs(1));
}

TEST_P(TrajectoryStoreContract, ARevokedNameGetsNoRepeatedAnswer) {
  PutPrompts(1);
  ASSERT_THAT(Ask(0, 1, "w0#1", "a").leases, SizeIs(1));
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 1);
  EXPECT_EQ(store().LeasePrompts({"w0#1", "a", {0, 0}, 1}).status().code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, RowsOfARevokedWorkerGoOnWithoutAFailure) {
  options_.max_row_failures = 1;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto rows = Rows(Task::kScore, 1000, "r0#1");
  ASSERT_THAT(rows, SizeIs(2));
  ASSERT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).ok());
  EXPECT_EQ(*store().RevokeWorker("r0#1"), 1);
  EXPECT_EQ(store().PutFields(Task::kScore, rows[1].token, ScoreOf(0)).code(), kPrecondition);
  const auto again = Rows(Task::kScore, 1000, "r0#2");
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].sample.key, rows[1].sample.key);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  EXPECT_TRUE(store().PutFields(Task::kScore, again[0].token, ScoreOf(0)).ok());
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, ARowThatOutlivesManyWorkersKillsItsGroup) {
  options_.max_row_failures = 2;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto lose = [this](int epoch, int64_t rows) {
    const std::string worker = StrCat("r0#", epoch);
    EXPECT_THAT(Rows(Task::kScore, rows, worker), SizeIs(static_cast<size_t>(rows)));
    EXPECT_EQ(*store().RevokeWorker(worker), rows);
  };
  for (int epoch = 1; epoch <= 3; ++epoch) lose(epoch, 1);
  // A worker returned the row without being lost, which resets the row's failure count.
  const auto back = Rows(Task::kScore, 1, "r1#1");
  ASSERT_TRUE(store().EndRow(Task::kScore, back[0].token, RowEnd::kReturned, "").ok());
  lose(4, 1);
  lose(5, 1);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  lose(6, 1);
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Ledger(LedgerEvent::kDead)[0].reason, "score_failed: 2 times: worker r0#6 was lost");
}

TEST_P(TrajectoryStoreContract, AWorkersRowsOfAGroupThatDiesWithItCountOnce) {
  options_.max_row_failures = 1;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  EXPECT_THAT(Rows(Task::kScore, 2, "r0#1"), SizeIs(2));
  EXPECT_EQ(*store().RevokeWorker("r0#1"), 2);
  EXPECT_THAT(Rows(Task::kScore, 2, "r0#2"), SizeIs(2));
  EXPECT_EQ(*store().RevokeWorker("r0#2"), 1);
  EXPECT_EQ(Now(GroupState::kDead), 1);
}

TEST_P(TrajectoryStoreContract, ARevokedNameGetsNoRowsAgain) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  ASSERT_THAT(*store().LeaseRowsFor({Task::kScore, "r0#1", "a", 1}), SizeIs(1));
  ASSERT_EQ(*store().RevokeWorker("r0#1"), 1);
  EXPECT_EQ(store().LeaseRowsFor({Task::kScore, "r0#1", "a", 1}).status().code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, RevokeIsIdempotentAndTakesAnyName) {
  PutPrompts(1);
  Lease(0, 1, "w0#1");
  EXPECT_EQ(*store().RevokeWorker("w0#1"), 1);
  EXPECT_EQ(*store().RevokeWorker("w0#1"), 0);
  EXPECT_EQ(*store().RevokeWorker("nobody#7"), 0);
  EXPECT_EQ(store().RevokeWorker("").status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, RevokeWakesWhoWaitsForGroups) {
  PutPrompts(1);
  Lease(0, 1, "w0#1");
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  ASSERT_EQ(*store().RevokeWorker("w0#1"), 1);
  EXPECT_GT(store().ChangeCount(Topic::kAdmission), seen);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_REVOKE_CONTRACT_H_
