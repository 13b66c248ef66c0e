#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_RECOVERY_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_RECOVERY_CONTRACT_H_

// Contract tests: epochs, redo, durability, resume and reading the ledger. For redos with different
// weights see trajectory_store_divergence_contract.h.

#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, EpochsGrowAndFenceTheFormerTrainer) {
  origin_.epoch = 4;
  origin_.resumed = true;
  const int64_t first = OpenEpoch();
  EXPECT_EQ(first, 5);
  EXPECT_EQ(OpenEpoch(), 6);
  EXPECT_EQ(store().NextBatch(first, 1).status().code(), kPrecondition);
  EXPECT_EQ(store().CommitStep(first, 1, {}, "h").status().code(), kPrecondition);
  EXPECT_EQ(store().MarkDurable(first, 0, "sha").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, NothingWithoutAnEpoch) {
  EXPECT_EQ(store().NextBatch(0, 1).status().code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, OpenEpochRefusesVersionsThatItCannotServe) {
  EXPECT_EQ(store().OpenEpoch("t0", {0, 1}).status().code(), kPrecondition);
  EXPECT_EQ(store().OpenEpoch("t0", {1, 0}).status().code(), kPrecondition);
  EXPECT_EQ(store().OpenEpoch("", {0, 0}).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, WeightsOfOtherSamplesOpenNoEpochAndChangeNothing) {
  const int64_t epoch = OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  // If the call were accepted, the version would become durable and older ones would be dropped.
  for (const int64_t version : {3, 2, 1}) {
    EXPECT_EQ(store().OpenEpochFor({"t1", {0, version}, "0badc0de"}).status().code(),
              kPrecondition);
  }
  Produce(2, 3);
  EXPECT_TRUE(store().NextBatch(epoch, 4)->ready);
  const auto opened = store().OpenEpoch("t1", {0, 0});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->redo.size(), 3U);
  EXPECT_TRUE(store().OpenEpochFor({"t2", {0, 0}, opened->digest}).ok());
}

TEST_P(TrajectoryStoreContract, ClaimsReturnToReadyWhenTheTrainerDies) {
  OpenEpoch();
  Produce(2, 0);
  const auto first = Ordinals(NextBatch(1));
  OpenEpoch();
  EXPECT_EQ(Now(GroupState::kClaimed), 0);
  EXPECT_EQ(Now(GroupState::kReady), 2);
  EXPECT_EQ(store().CommitStep(epoch_, 1, first, "h").status().code(), kPrecondition);
  EXPECT_EQ(Ordinals(NextBatch(1)), first);
  Train(1);
}

TEST_P(TrajectoryStoreContract, RedoGivesTheJournaledBatchesInOrder) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  const auto reply = store().OpenEpoch("t1", {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  epoch_ = reply->epoch;
  ASSERT_EQ(reply->redo.size(), 2u);
  EXPECT_EQ(reply->redo[0].step, 2);
  EXPECT_EQ(reply->redo[0].content_hash, HashOf(2));
  EXPECT_EQ(reply->redo[0].uids,
            (std::vector<std::string>{"job/2/0/0", "job/2/0/1", "job/3/0/0", "job/3/0/1"}));
  EXPECT_EQ(reply->redo[1].step, 3);
  EXPECT_EQ(Ordinals(NextBatch(2)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(NextBatch(2).groups[0].samples[1].sample.score->reward, 1.0);
}

TEST_P(TrajectoryStoreContract, RedoneStepsMoveNothingAndAreRecordedOnce) {
  OpenEpoch();
  std::vector<CommitReceipt> receipts;
  for (int64_t step = 1; step <= 2; ++step) {
    Produce(2, step - 1);
    receipts.push_back(Train(step));
  }
  OpenEpoch(0);
  for (int64_t step = 1; step <= 2; ++step) {
    EXPECT_EQ(Train(step).digest, receipts[static_cast<size_t>(step - 1)].digest);
    EXPECT_EQ(Train(step).policy.version, step);  // redo with the same hash
  }
  EXPECT_EQ(Stats().committed_version, 2);
  const auto rows = Ledger(LedgerEvent::kTrained);
  ASSERT_EQ(rows.size(), 16u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].redo, i >= 8) << i;
  EXPECT_EQ(rows[8].uid, rows[0].uid);
  EXPECT_EQ(rows[8].epoch, epoch_);
  Produce(2, 2);
  Train(3);
}

TEST_P(TrajectoryStoreContract, RedoComesFirstAndInOrder) {
  OpenEpoch();
  for (int64_t step = 1; step <= 2; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  Produce(2, 2);
  OpenEpoch(0);
  EXPECT_EQ(store().NextBatch(epoch_, 3).status().code(), kPrecondition);
  EXPECT_EQ(store().CommitStep(epoch_, 2, {2, 3}, HashOf(2)).status().code(), kPrecondition);
  EXPECT_EQ(store().Explain()->edge, "trainer");
  Train(1);
  Train(2);
  Train(3);
}

TEST_P(TrajectoryStoreContract, DurableRowsCarryTheDigestOfTheirVersion) {
  OpenEpoch();
  Produce(2, 0);
  const CommitReceipt receipt = Train(1);
  Produce(2, 1);
  Train(2);
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  const auto rows = Ledger(LedgerEvent::kDurable);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].version, 1);
  EXPECT_EQ(rows[0].checkpoint_sha256, "sha1");
  EXPECT_EQ(rows[0].digest, receipt.digest);
  EXPECT_EQ(Now(GroupState::kDurable), 2);
  EXPECT_EQ(Now(GroupState::kTrained), 2);
  EXPECT_EQ(store().MarkDurable(epoch_, 3, "sha3").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, DurableVersionsFreeCapacity) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  EXPECT_EQ(Stats().capacity_used, 2);
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha").ok());
  EXPECT_EQ(Stats().capacity_used, 0);
}

TEST_P(TrajectoryStoreContract, RowsAreForgottenWhenTheSecondNewestCheckpointHoldsThem) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  ASSERT_TRUE(store().MarkDurable(epoch_, 2, "sha2").ok());
  EXPECT_EQ(store().NextBatch(epoch_, 1).status().code(), kPrecondition);
  EXPECT_TRUE(store().NextBatch(epoch_, 2)->ready);
  EXPECT_EQ(store().OpenEpoch("t1", {0, 0}).status().code(), kPrecondition);
  EXPECT_EQ(store().OpenEpoch("t1", {0, 1})->redo.size(), 2u);
}

TEST_P(TrajectoryStoreContract, AVersionOlderThanTheRememberedOnesIsDurableAlready) {
  OpenEpoch();
  for (int64_t step = 1; step <= 3; ++step) {
    Produce(2, step - 1);
    Train(step);
  }
  ASSERT_TRUE(store().MarkDurable(epoch_, 2, "sha2").ok());
  ASSERT_TRUE(store().MarkDurable(epoch_, 3, "sha3").ok());
  EXPECT_TRUE(store().MarkDurable(epoch_, 1, "sha1").ok());
  EXPECT_EQ(Ledger(LedgerEvent::kDurable).size(), 2u);
}

TEST_P(TrajectoryStoreContract, AFreshLedgerOpensWithTheJobsPromises) {
  const auto rows = Ledger();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].seq, 1);
  EXPECT_EQ(rows[0].event, LedgerEvent::kOpen);
  EXPECT_EQ(rows[0].job, "job");
  EXPECT_EQ(rows[0].bound, 1);
  EXPECT_EQ(rows[0].disposition, "wait");
  EXPECT_EQ(rows[0].groups_per_step, 2);
  EXPECT_EQ(rows[0].group_size, 2);
  EXPECT_EQ(store().RecordResume(1, 0, 0, "sha").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, AResumedStoreContinuesTheLedger) {
  origin_ = {};
  origin_.policy = {3, 20};
  origin_.epoch = 2;
  origin_.ledger_seq = 500;
  origin_.digest = std::string(64, 'a');
  origin_.resumed = true;
  origin_.cursor.low_water = 40;
  lineage_ = 3;
  next_ordinal_ = 40;
  EXPECT_TRUE(Ledger().empty());
  ASSERT_TRUE(store().RecordResume(3, 2, 20, "sha").ok());
  EXPECT_EQ(store().RecordResume(3, 2, 20, "sha").code(), kPrecondition);
  const auto rows = Ledger();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].seq, 501);
  EXPECT_EQ(rows[0].event, LedgerEvent::kResumed);
  EXPECT_EQ(rows[0].epoch, 3);
  EXPECT_EQ(rows[0].lineage, 3);
  EXPECT_EQ(rows[0].parent_lineage, 2);
  EXPECT_EQ(rows[0].fork_version, 20);
  EXPECT_EQ(rows[0].checkpoint_sha256, "sha");
  EXPECT_EQ(rows[0].digest, origin_.digest);
  OpenEpoch(20);
  Produce(2, 20);
  const CommitReceipt receipt = Train(21);
  EXPECT_EQ(receipt.policy, (PolicyVersion{3, 21}));
  std::string digest = origin_.digest;
  for (const LedgerRow& row : Ledger(LedgerEvent::kTrained)) {
    EXPECT_EQ(row.lineage, 3);
    EXPECT_EQ(row.train_version, 20);
    digest = ExtendDigest(digest, row.uid);
  }
  EXPECT_EQ(receipt.digest, digest);
}

TEST_P(TrajectoryStoreContract, RecordResumeRefusesToComeLate) {
  origin_.resumed = true;
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  EXPECT_EQ(store().RecordResume(1, 0, 0, "sha").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, ReadLedgerPagesAndTrimForgets) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);  // 1 open row + 4 sample rows
  const auto page = *store().ReadLedger(1, 2);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].seq, 2);
  EXPECT_EQ(page[1].seq, 3);
  EXPECT_EQ(Stats().ledger_backlog, 5);
  ASSERT_TRUE(store().TrimLedger(3).ok());
  const auto rest = Ledger();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].seq, 4);
  EXPECT_TRUE(store().ReadLedger(5, 10)->empty());
  ASSERT_TRUE(store().TrimLedger(100).ok());
  EXPECT_TRUE(Ledger().empty());
  EXPECT_EQ(store().ReadLedger(-1, 1).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, ALedgerThatNobodyTrimsStopsLeasing) {
  options_.max_ledger_rows = 5;
  OpenEpoch();
  Produce(2, 0);
  Train(1);  // 1 open row + 4 sample rows
  PutPrompts(1);
  const auto reply = store().LeasePrompts({"w0", "", {0, 1}, 1});
  EXPECT_TRUE(reply->leases.empty());
  EXPECT_NE(reply->reason.find("5 ledger rows are not drained"), std::string::npos)
      << reply->reason;
  ASSERT_TRUE(store().TrimLedger(3).ok());
  EXPECT_EQ(store().LeasePrompts({"w0", "", {0, 1}, 1})->leases.size(), 1u);
}

TEST_P(TrajectoryStoreContract, TokensOfAResumedStoreAreLargerThanTheFormerOnes) {
  PutPrompts(1);
  OpenEpoch();
  const int64_t before = Lease(0, 1)[0].token;
  StoreOrigin origin;
  origin.resumed = true;
  origin.epoch = epoch_;
  const auto resumed = GetParam().create(options_, origin, clock_);
  ASSERT_NE(resumed, nullptr);
  ASSERT_TRUE(resumed->PutPrompts({PromptAt(0)}).ok());
  EXPECT_GT(resumed->LeasePrompts({"w0", "", {0, 0}, 1})->leases[0].token, before);
}

TEST_P(TrajectoryStoreContract, ARepeatedOpenEpochGivesTheSameEpoch) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  Produce(2, 1);
  const EpochRequest request{"t1", {0, 0}, "", "a"};
  const auto opened = store().OpenEpochFor(request);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->epoch, 2);
  const uint64_t changes = store().ChangeCount(Topic::kBatch);
  for (int i = 0; i < 2; ++i) {
    const auto again = store().OpenEpochFor(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->epoch, opened->epoch);
    EXPECT_EQ(again->lineage, opened->lineage);
    EXPECT_EQ(again->digest, opened->digest);
    ASSERT_THAT(again->redo, SizeIs(1));
    EXPECT_EQ(again->redo[0].uids, opened->redo.at(0).uids);
    EXPECT_EQ(again->redo[0].content_hash, HashOf(1));
  }
  EXPECT_EQ(store().ChangeCount(Topic::kBatch), changes);
  epoch_ = opened->epoch;
  Train(1);  // redo
  const NextBatchReply claimed = NextBatch(2);
  EXPECT_EQ(store().OpenEpochFor(request)->epoch, 2) << "a late one takes nothing away";
  EXPECT_TRUE(store().CommitStep(epoch_, 2, Ordinals(claimed), HashOf(2)).ok());
}

TEST_P(TrajectoryStoreContract, ARepeatedOpenEpochFencesNobody) {
  ASSERT_EQ(store().OpenEpochFor({"t1", {0, 0}, "", "a"})->epoch, 1);
  const int64_t next = store().OpenEpochFor({"t2", {0, 0}, "", "b"})->epoch;
  EXPECT_EQ(next, 2);
  const absl::Status fenced = store().OpenEpochFor({"t1", {0, 0}, "", "a"}).status();
  EXPECT_EQ(fenced.code(), absl::StatusCode::kAborted)
      << "not FAILED_PRECONDITION: see CheckpointChoice";
  EXPECT_EQ(Message(fenced), "trainer epoch 1 is fenced: the open one is 2");
  EXPECT_TRUE(store().NextBatch(next, 1).ok());
  // Each call without a request id opens a new epoch. Old request ids are evicted.
  EXPECT_EQ(OpenEpoch(), 3);
  EXPECT_EQ(OpenEpoch(), 4);
  EXPECT_EQ(store().OpenEpochFor({"t2", {0, 0}, "", "b"}).status().code(),
            absl::StatusCode::kAborted);
  for (int64_t i = 1; i <= kMaxEpochRequests; ++i) {
    EXPECT_EQ(store().OpenEpochFor({"t3", {0, 0}, "", StrCat("c", i)})->epoch, 4 + i);
  }
  EXPECT_EQ(store().OpenEpochFor({"t3", {0, 0}, "", "c1"}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(store().OpenEpochFor({"t3", {0, 0}, "", StrCat("c", kMaxEpochRequests)})->epoch,
            4 + kMaxEpochRequests);
  EXPECT_EQ(store().OpenEpochFor({"t2", {0, 0}, "", "b"})->epoch, 5 + kMaxEpochRequests);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_RECOVERY_CONTRACT_H_
