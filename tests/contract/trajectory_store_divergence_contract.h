#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_DIVERGENCE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_DIVERGENCE_CONTRACT_H_

// Contract tests: redos that produce different weights start a new lineage and lose no sample.

#include <utility>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, TheFirstStepThatDiffersRaisesTheLineageOnceAnEpoch) {
  OpenEpoch();
  for (int64_t step = 1; step <= 4; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  OpenEpoch(0);
  EXPECT_EQ(Train(1).policy, (PolicyVersion{0, 1}));
  EXPECT_EQ(Train(2, "other2").policy, (PolicyVersion{1, 2}));
  EXPECT_EQ(Train(3, "other3").policy, (PolicyVersion{1, 3}));
  const CommitReceipt last = Train(4);  // same hash as the original step
  EXPECT_EQ(last.policy, (PolicyVersion{1, 4}));
  EXPECT_EQ(Stats().committed_version, 4);
  lineage_ = 1;
  Produce(2, 4);
  EXPECT_EQ(Train(5).policy, (PolicyVersion{1, 5}));
}

TEST_P(TrajectoryStoreContract, ARepeatedCommitGivesTheSameReceiptAndRaisesNothing) {
  DivergeAt(2, 3);
  const size_t rows = Ledger().size();
  const CommitReceipt again = Train(2, "other2");
  EXPECT_EQ(again.policy, (PolicyVersion{1, 2}));
  EXPECT_EQ(again.content_hash, "other2");
  EXPECT_EQ(Train(1).policy, (PolicyVersion{0, 1}));
  EXPECT_EQ(Train(3, "other3").policy, (PolicyVersion{1, 3}));
  EXPECT_EQ(Ledger().size(), rows);
  Produce(2, 3);
  EXPECT_EQ(Train(4).policy, (PolicyVersion{1, 4}));
}

TEST_P(TrajectoryStoreContract, AStepIsRedoneOnceAnEpochWithOneHash) {
  DivergeAt(1, 2);
  for (const auto& [step, ordinals] : {std::pair<int64_t, std::vector<int64_t>>{1, {0, 1}},
                                       std::pair<int64_t, std::vector<int64_t>>{2, {2, 3}}}) {
    const auto receipt = store().CommitStep(epoch_, step, ordinals, "third");
    EXPECT_EQ(receipt.status().code(), kPrecondition);
    EXPECT_THAT(Message(receipt.status()),
                HasSubstr(StrCat("content hash other", step, ", not third")));
  }
  Produce(2, 2);
  Train(3);
  EXPECT_EQ(store().CommitStep(epoch_, 3, {4, 5}, "third").status().code(), kPrecondition)
      << "a step of this epoch is not redone";
}

TEST_P(TrajectoryStoreContract, TheJournalHasTheNewHashes) {
  DivergeAt(2, 3);
  const auto reply = store().OpenEpoch("t1", {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->lineage, 1);
  ASSERT_THAT(reply->redo, SizeIs(2));
  EXPECT_EQ(reply->redo[0].content_hash, "other2");
  EXPECT_EQ(reply->redo[1].content_hash, "other3");
  epoch_ = reply->epoch;
  EXPECT_EQ(Train(2, "other2").policy, (PolicyVersion{1, 2})) << "these weights are known";
  EXPECT_EQ(Train(3, "other3").policy, (PolicyVersion{1, 3}));
}

TEST_P(TrajectoryStoreContract, AnotherEpochMayDifferAgain) {
  DivergeAt(2, 4);
  OpenEpochAt({1, 2});
  EXPECT_EQ(Train(3, "third3").policy, (PolicyVersion{2, 3}));
  EXPECT_EQ(Train(4, "third4").policy, (PolicyVersion{2, 4}));
  EXPECT_EQ(TryOpenEpoch({0, 2}).code(), kPrecondition) << "lineage 1 left it at version 1";
  EXPECT_EQ(TryOpenEpoch({1, 3}).code(), kPrecondition);
  EXPECT_EQ(TryOpenEpoch({3, 4}).code(), kPrecondition);
  OpenEpochAt({0, 1});
  EXPECT_EQ(Train(2).policy, (PolicyVersion{3, 2})) << "as at first, but not as in lineage 2";
  EXPECT_EQ(TryOpenEpoch({1, 2}).code(), kPrecondition);
  EXPECT_EQ(TryOpenEpoch({2, 4}).code(), kPrecondition);
  EXPECT_TRUE(TryOpenEpoch({0, 1}).ok());
  EXPECT_TRUE(TryOpenEpoch({3, 2}).ok());
}

TEST_P(TrajectoryStoreContract, ASecondDeathAcceptsCheckpointsFromBeforeAndAfter) {
  DivergeAt(3, 4);
  const absl::Status beyond = TryOpenEpoch({0, 3});
  EXPECT_EQ(beyond.code(), kPrecondition);
  EXPECT_THAT(Message(beyond), HasSubstr("load its version 2 or an older one"));
  EXPECT_EQ(TryOpenEpoch({0, 4}).code(), kPrecondition);
  EXPECT_EQ(TryOpenEpoch({2, 4}).code(), kPrecondition);
  for (const PolicyVersion loaded : {PolicyVersion{0, 0}, {0, 2}, {1, 3}, {1, 4}}) {
    const auto reply = store().OpenEpoch("t1", loaded);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->lineage, 1);
    EXPECT_EQ(reply->redo.size(), static_cast<size_t>(4 - loaded.version));
  }
}

TEST_P(TrajectoryStoreContract, ADeathInTheMiddleOfTheRedoIsRedoneToo) {
  DivergeAt(2, 4);
  OpenEpochAt({0, 1});
  EXPECT_EQ(Train(2, "third2").policy, (PolicyVersion{2, 2}));
  OpenEpochAt({0, 0});
  EXPECT_EQ(Train(1).policy, (PolicyVersion{0, 1}));
  EXPECT_EQ(Train(2, "third2").policy, (PolicyVersion{2, 2}));
  EXPECT_EQ(Train(3, "third3").policy, (PolicyVersion{3, 3})) << "other3 was committed";
  EXPECT_EQ(Train(4, "third4").policy, (PolicyVersion{3, 4}));
}

TEST_P(TrajectoryStoreContract, SamplesOfEveryLineageOfTheStoreAreTaken) {
  PutPrompts(4);
  OpenEpoch();
  const auto first = Lease(0, 2);
  for (const GroupLease& lease : first) Finish(lease, 0);
  const auto running = Lease(0, 2);
  ScoreAll();
  Train(1);
  OpenEpoch(0);
  ASSERT_EQ(Train(1, "other1").policy, (PolicyVersion{1, 1}));
  ASSERT_TRUE(store().PutSample(running[0].token, 0, ResponseAt(0)).ok());
  const Response mixed = Continued(ResponseAt(0), 1, 2, 1);
  ASSERT_TRUE(store().PutSample(running[0].token, 1, mixed).ok());
  ASSERT_TRUE(store().PutSample(running[1].token, 0, ResponseAt(1, 3, 1)).ok());
  // Lineage 0 is orphaned, but its samples remain usable.
  ASSERT_TRUE(store().PutSample(running[1].token, 1, ResponseAt(1, 3, 0)).ok());
  ScoreAll();
  lineage_ = 1;
  EXPECT_EQ(Train(2).policy, (PolicyVersion{1, 2}));
  const auto rows = Ledger(LedgerEvent::kTrained);
  ASSERT_THAT(rows, SizeIs(12));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].lineage, i < 4 ? 0 : 1) << i;
    EXPECT_EQ(rows[i].redo, i >= 4 && i < 8) << i;
  }
  EXPECT_EQ(rows[9].spans, mixed.spans);
  EXPECT_EQ(rows[9].min_version, 0);
  EXPECT_EQ(rows[9].max_version, 1);
  EXPECT_EQ(rows[11].spans[0].policy, (PolicyVersion{0, 1}));
}

TEST_P(TrajectoryStoreContract, SamplesOfAnUnknownLineageOrGoingBackAreRefused) {
  origin_.policy = {1, 0};
  origin_.resumed = true;
  lineage_ = 1;
  PutPrompts(4);
  OpenEpoch();
  for (const GroupLease& lease : Lease(0, 2)) Finish(lease, 0);
  const GroupLease running = Lease(0, 1)[0];
  ScoreAll();
  Train(1);
  OpenEpoch(0);
  ASSERT_EQ(Train(1, "other1").policy, (PolicyVersion{2, 1}));
  const auto put = [&](const Response& response) {
    return store().PutSample(running.token, 0, response);
  };
  EXPECT_EQ(put(ResponseAt(0, 3, 0)).code(), kInvalid);
  const absl::Status newer = put(ResponseAt(0, 3, 3));
  EXPECT_EQ(newer.code(), kInvalid);
  EXPECT_THAT(Message(newer), HasSubstr("lineage 3 is none of the store's, which are 1 to 2"));
  EXPECT_EQ(put(Continued(ResponseAt(0, 3, 1), 1, 2, 3)).code(), kInvalid);
  EXPECT_EQ(put(Continued(ResponseAt(0, 3, 2), 1, 2, 1)).code(), kInvalid) << "lineages go back";
  EXPECT_EQ(put(Continued(ResponseAt(1, 3, 1), 0, 2, 2)).code(), kInvalid) << "versions go back";
  EXPECT_EQ(put(ResponseAt(2, 3, 2)).code(), kInvalid) << "not committed";
  EXPECT_EQ(store().ReturnLease(running.token, {0}, {ResponseAt(0, 3, 0)}).code(), kInvalid);
  EXPECT_EQ(store().ReturnLease(running.token, {0}, {ResponseAt(0, 3, 3)}).code(), kInvalid);
  EXPECT_TRUE(put(Continued(ResponseAt(0, 3, 1), 1, 2, 2)).ok());
}

TEST_P(TrajectoryStoreContract, KeptTokensGoOnInTheNewLineage) {
  PutPrompts(3);
  OpenEpoch();
  for (const GroupLease& lease : Lease(0, 2)) Finish(lease, 0);
  const GroupLease running = Lease(0, 1)[0];
  ScoreAll();
  Train(1);
  OpenEpoch(0);
  Train(1, "other1");
  const Response part = Continued(ResponseAt(0), 1, 2, 1);
  ASSERT_TRUE(store().ReturnLease(running.token, {0, 1}, {part, ResponseAt(1)}).ok());
  EXPECT_THAT(Ask(1, 1).leases, IsEmpty()) << "an engine of lineage 0";
  lineage_ = 1;
  const GroupLease again = Lease(1, 1)[0];
  ASSERT_THAT(again.partials, SizeIs(2));
  EXPECT_EQ(again.partials[0].spans, part.spans);
  EXPECT_TRUE(store().PutSample(again.token, 0, Continued(part, 1, 1, 1)).ok());
  EXPECT_TRUE(store().PutSample(again.token, 1, Continued(ResponseAt(1), 1, 1, 1)).ok());
}

TEST_P(TrajectoryStoreContract, AnEngineOfTheOldLineageGetsNoLease) {
  DivergeAt(1, 1);
  PutPrompts(1);
  const uint64_t seen = store().ChangeCount(Topic::kAdmission);
  lineage_ = 0;
  const LeaseReply refused = Ask(1, 1);
  EXPECT_THAT(refused.leases, IsEmpty());
  EXPECT_THAT(refused.reason, HasSubstr("lineage"));
  EXPECT_THAT(store().Explain()->text, HasSubstr(refused.reason));
  lineage_ = 1;
  Lease(1, 1);
  EXPECT_GE(store().ChangeCount(Topic::kAdmission), seen);
}

TEST_P(TrajectoryStoreContract, CheckpointsOfReplacedVersionsAreNotDurableAnyMore) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  ASSERT_TRUE(store().MarkDurable(epoch_, 3, "sha3").ok());
  OpenEpoch(1);
  RedoOthers(2, 2, 3, "other");
  lineage_ = 1;
  Produce(2, 3);
  Train(4);
  ASSERT_TRUE(store().MarkDurable(epoch_, 4, "sha4").ok());
  EXPECT_TRUE(store().NextBatch(epoch_, 2)->ready) << "only version 1 of those before holds";
  ASSERT_TRUE(store().MarkDurable(epoch_, 3, "other sha3").ok());
  const auto rows = Ledger(LedgerEvent::kDurable);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].lineage, 0);
  EXPECT_EQ(rows[1].lineage, 1);
  EXPECT_EQ(rows[1].version, 4);
  EXPECT_EQ(rows[2].lineage, 1);
  EXPECT_EQ(rows[2].checkpoint_sha256, "other sha3");
  EXPECT_EQ(rows[2].digest, rows[0].digest);
  EXPECT_EQ(store().NextBatch(epoch_, 2).status().code(), kPrecondition) << "versions 3 and 4 hold";
}

TEST_P(TrajectoryStoreContract, ACheckpointFromBeforeIsRecordedUnderItsOwnLineage) {
  OpenEpoch();
  for (int64_t step = 1; step <= 2; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  OpenEpoch(1);
  RedoOthers(2, 2, 2, "other");
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  const auto rows = Ledger(LedgerEvent::kDurable);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].lineage, 0);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_DIVERGENCE_CONTRACT_H_
