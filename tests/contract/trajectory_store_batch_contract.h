#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_BATCH_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_BATCH_CONTRACT_H_

// Contract tests: the trainer's operations in a fault-free job, dispositions and Explain().

#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, NextBatchGivesExactlyBCompleteGroups) {
  OpenEpoch();
  Produce(3, 0);
  const NextBatchReply batch = NextBatch(1);
  ASSERT_TRUE(batch.ready);
  EXPECT_FALSE(batch.reason.empty());
  EXPECT_EQ(Ordinals(batch), (std::vector<int64_t>{0, 1}));
  ASSERT_EQ(batch.groups[0].samples.size(), 2u);
  const TrainSample& sample = batch.groups[1].samples[1];
  EXPECT_EQ(sample.sample.uid, "job/1/0/1");
  EXPECT_EQ(sample.sample.score->reward, 1.0);
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_EQ(sample.min_version, 0);
  EXPECT_EQ(sample.max_version, 0);
  EXPECT_EQ(Now(GroupState::kClaimed), 2);
}

TEST_P(TrajectoryStoreContract, NextBatchSaysWhatIsMissing) {
  OpenEpoch();
  Produce(1, 0);
  const NextBatchReply batch = NextBatch(1);
  EXPECT_FALSE(batch.ready);
  EXPECT_TRUE(batch.groups.empty());
  EXPECT_NE(batch.reason.find("step 1 needs 1 more groups: 1 of 2 complete"), std::string::npos)
      << batch.reason;
}

TEST_P(TrajectoryStoreContract, NextBatchIsIdempotent) {
  OpenEpoch();
  Produce(2, 0);
  const NextBatchReply first = NextBatch(1);
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  ScoreAll();
  EXPECT_EQ(Ordinals(NextBatch(1)), Ordinals(first));
  EXPECT_EQ(Now(GroupState::kClaimed), 2);
}

TEST_P(TrajectoryStoreContract, ReadSamplesGivesWhatABatchHolds) {
  OpenEpoch();
  Produce(2, 0);
  EXPECT_TRUE(absl::IsNotFound(store().ReadSamples({{1, 0, 1}}).status())) << "not claimed";
  const NextBatchReply batch = NextBatch(1);
  const auto read = [this] { return store().ReadSamples({{1, 0, 1}, {0, 0, 0}, {1, 0, 0}}); };
  const auto expect_samples = [&] {
    const absl::StatusOr<std::vector<SampleView>> samples = read();
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_EQ(samples->size(), 3u);
    const SampleView& expected = batch.groups[1].samples[1].sample;
    const SampleView& sample = (*samples)[0];
    EXPECT_EQ(sample.uid, expected.uid);
    EXPECT_EQ(sample.prompt->prompt_ids, expected.prompt->prompt_ids);
    EXPECT_EQ(sample.response->response_ids, expected.response->response_ids);
    EXPECT_EQ(sample.response->behavior_logprobs, expected.response->behavior_logprobs);
    EXPECT_EQ(sample.response->spans, expected.response->spans);
    EXPECT_EQ(sample.score, nullptr);
    EXPECT_EQ((*samples)[1].uid, "job/0/0/0");
    EXPECT_EQ((*samples)[2].uid, "job/1/0/0");
  };
  expect_samples();
  EXPECT_EQ(Now(GroupState::kClaimed), 2);
  Train(1);
  expect_samples();
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha").ok());
  expect_samples();
  EXPECT_TRUE(store().ReadSamples({})->empty());
  for (const SampleKey& key : {SampleKey{1, 1, 0}, {1, 0, 2}, {1, 0, -1}, {7, 0, 0}}) {
    EXPECT_TRUE(absl::IsNotFound(store().ReadSamples({key}).status())) << key.ordinal;
  }
}

TEST_P(TrajectoryStoreContract, ReadSamplesRefusesABatchThatANewEpochHasPutBack) {
  OpenEpoch();
  Produce(2, 0);
  NextBatch(1);
  OpenEpoch();
  EXPECT_TRUE(absl::IsNotFound(store().ReadSamples({{0, 0, 0}}).status()));
}

TEST_P(TrajectoryStoreContract, NextBatchTakesTheOldestVersionFirst) {
  options_.staleness.max = 2;
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(3);
  const auto young = Lease(1, 2);        // ordinals 2 and 3, version 1
  const auto old = Lease(0, 1, "late");  // ordinal 4, version 0
  for (const GroupLease& lease : young) Finish(lease, 1);
  Finish(old[0], 0);
  ScoreAll();
  EXPECT_EQ(Ordinals(NextBatch(2)), (std::vector<int64_t>{2, 4}));
}

TEST_P(TrajectoryStoreContract, NextBatchRefusesAnotherStep) {
  OpenEpoch();
  EXPECT_EQ(store().NextBatch(epoch_, 2).status().code(), kPrecondition);
  EXPECT_EQ(store().NextBatch(epoch_, 0).status().code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, NextBatchRefusesAStepBeyondTheLast) {
  options_.last_step = 1;
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  EXPECT_EQ(store().NextBatch(epoch_, 2).status().code(), kPrecondition);
  EXPECT_EQ(store().Explain()->edge, "done");
}

TEST_P(TrajectoryStoreContract, WaitHoldsTheStepForAGroupAtItsLastChance) {
  OpenEpoch();
  PutPrompts(4);
  const auto leases = Lease(0, 4);
  for (const int i : {1, 2, 3}) Finish(leases[static_cast<size_t>(i)], 0);
  ScoreAll();
  Train(1);  // eta = 1: group 0 may still be trained in step 2
  PutPrompts(2);
  for (const GroupLease& lease : Lease(1, 2)) Finish(lease, 1);
  ScoreAll();
  const NextBatchReply batch = NextBatch(2);  // step 2 is the last that may train version 0
  EXPECT_FALSE(batch.ready);
  EXPECT_NE(batch.reason.find("step 2 waits for group 0"), std::string::npos) << batch.reason;
  EXPECT_NE(batch.reason.find("leased to w0"), std::string::npos) << batch.reason;
  Finish(leases[0], 0);
  ScoreAll();
  EXPECT_EQ(Ordinals(NextBatch(2)), (std::vector<int64_t>{0, 3}));
}

TEST_P(TrajectoryStoreContract, AGroupCompletedAtANewerVersionIsAsOldAsItsTokens) {
  OpenEpoch();
  PutPrompts(4);
  const auto leases = Lease(0, 4);
  for (const int i : {1, 2}) Finish(leases[static_cast<size_t>(i)], 0);
  ScoreAll();
  Train(1);
  Finish(leases[3], 1);  // leased at version 0, sampled at version 1
  Finish(leases[0], 0);
  ScoreAll();
  const NextBatchReply batch = NextBatch(2);
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_EQ(batch.groups[0].samples[0].min_version, 0);
  EXPECT_EQ(batch.groups[1].samples[0].min_version, 1);
}

TEST_P(TrajectoryStoreContract, ObservationTokensDoNotAge) {
  OpenEpoch();
  Produce(2, 0);
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  Train(1);
  for (const GroupLease& lease : leases) {
    for (const int32_t index : lease.missing) {
      Response response = Continued(ResponseAt(0, 2), 1, 2);
      response.loss_mask = {0, 0, 1, 1};
      ASSERT_TRUE(store().PutSample(lease.token, index, response).ok());
    }
  }
  ScoreAll();
  EXPECT_EQ(NextBatch(2).groups[0].samples[0].min_version, 1);
}

TEST_P(TrajectoryStoreContract, CommitMovesTheVersionAndWritesTheLedger) {
  OpenEpoch();
  Produce(2, 0);
  const CommitReceipt receipt = Train(1);
  EXPECT_EQ(receipt.policy, (PolicyVersion{0, 1}));
  EXPECT_EQ(receipt.epoch, epoch_);
  EXPECT_EQ(receipt.step, 1);
  EXPECT_EQ(receipt.content_hash, HashOf(1));
  EXPECT_EQ(Stats().committed_version, 1);
  EXPECT_EQ(Now(GroupState::kTrained), 2);
  EXPECT_EQ(Stats().outstanding, 0);
  const auto rows = Ledger(LedgerEvent::kTrained);
  ASSERT_EQ(rows.size(), 4u);
  std::string digest = InitialDigest();
  const char* uids[] = {"job/0/0/0", "job/0/0/1", "job/1/0/0", "job/1/0/1"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].uid, uids[i]);
    EXPECT_EQ(rows[i].step, 1);
    EXPECT_EQ(rows[i].train_version, 0);
    EXPECT_EQ(rows[i].epoch, epoch_);
    EXPECT_EQ(rows[i].loss_tokens, 3);
    EXPECT_EQ(rows[i].spans, (std::vector<Span>{{{0, 0}, 0, 3}}));
    EXPECT_FALSE(rows[i].redo);
    EXPECT_EQ(rows[i].reason, "");
    digest = ExtendDigest(digest, uids[i]);
  }
  EXPECT_EQ(receipt.digest, digest);
}

TEST_P(TrajectoryStoreContract, CommitIsIdempotentAndRefusesOthers) {
  OpenEpoch();
  Produce(2, 0);
  const CommitReceipt receipt = Train(1);
  const auto again = store().CommitStep(epoch_, 1, {1, 0}, HashOf(1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->digest, receipt.digest);
  EXPECT_EQ(Stats().committed_version, 1);
  EXPECT_EQ(Ledger(LedgerEvent::kTrained).size(), 4u);
  EXPECT_EQ(store().CommitStep(epoch_, 1, {0, 2}, HashOf(1)).status().code(), kPrecondition);
  EXPECT_EQ(store().CommitStep(epoch_, 1, {0, 1}, "other").status().code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, CommitRefusesGroupsThatWereNotClaimed) {
  OpenEpoch();
  Produce(3, 0);
  EXPECT_EQ(store().CommitStep(epoch_, 1, {0, 1}, "h").status().code(), kPrecondition);
  ASSERT_TRUE(NextBatch(1).ready);
  EXPECT_EQ(store().CommitStep(epoch_, 1, {0, 2}, "h").status().code(), kPrecondition);
  EXPECT_EQ(store().CommitStep(epoch_, 1, {0}, "h").status().code(), kPrecondition);
  EXPECT_EQ(store().CommitStep(epoch_, 2, {0, 1}, "h").status().code(), kPrecondition);
  EXPECT_EQ(Stats().committed_version, 0);
}

TEST_P(TrajectoryStoreContract, DropCancelsOvertakenGroupsWithTheReason) {
  options_.staleness.disposition = Disposition::kDrop;
  OpenEpoch();
  PutPrompts(8);
  const auto leases = Lease(0, 4);
  Finish(leases[1], 0);
  Finish(leases[2], 0);
  ASSERT_TRUE(store().PutSample(leases[0].token, 1, ResponseAt(0)).ok());
  ScoreAll();
  Train(1);
  for (const GroupLease& lease : Lease(1, 2)) Finish(lease, 1);
  ScoreAll();
  Train(2);  // at version 2, groups of version 0 exceed eta = 1
  EXPECT_EQ(Now(GroupState::kDropped), 2);
  const auto rows = Ledger(LedgerEvent::kDropped);
  ASSERT_EQ(rows.size(), 2u);  // the finished sample of group 0, and one row for group 3
  EXPECT_EQ(rows[0].uid, "job/0/0/1");
  EXPECT_EQ(rows[0].reason, "too_old");
  EXPECT_EQ(rows[0].loss_tokens, 3);
  EXPECT_EQ(rows[1].uid, "job/3/0/0");
  EXPECT_EQ(rows[1].loss_tokens, 0);
  EXPECT_EQ(store().RenewLeases("w0", {leases[0].token, leases[3].token})->size(), 2u);
  EXPECT_EQ(Stats().discarded_samples, 1);
  EXPECT_EQ(Stats().discarded_tokens, 3);
}

TEST_P(TrajectoryStoreContract, RequeueStartsHopelessGroupsAgainAndGivesUpInTheEnd) {
  options_.staleness.disposition = Disposition::kRequeue;
  options_.staleness.groups_per_step = 1;
  options_.max_requeues = 1;
  OpenEpoch();
  PutPrompts(20);
  int64_t step = 0;
  const auto overtake = [&](int64_t ordinal, int32_t attempt) {
    const GroupLease lease = Lease(step, 1)[0];
    EXPECT_EQ(lease.ordinal, ordinal);
    EXPECT_EQ(lease.attempt, attempt);
    for (int i = 0; i < 2; ++i) {
      Finish(Lease(step, 1)[0], step);
      ScoreAll();
      Train(++step);
    }
  };
  overtake(0, 0);
  EXPECT_EQ(Stats().transitions[static_cast<int>(GroupState::kRequeued)], 1);
  ASSERT_EQ(Ledger(LedgerEvent::kRequeued).size(), 1u);
  EXPECT_EQ(Ledger(LedgerEvent::kRequeued)[0].reason, "too_old");
  overtake(0, 1);
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Ledger(LedgerEvent::kDead)[0].reason, "too_slow");
}

TEST_P(TrajectoryStoreContract, MaskTakesTooOldTokensOutOfTheLoss) {
  options_.staleness.disposition = Disposition::kMask;
  options_.staleness.groups_per_step = 1;
  OpenEpoch();
  PutPrompts(6);
  const GroupLease slow = Lease(0, 1)[0];
  for (int64_t step = 1; step <= 2; ++step) {
    Finish(Lease(step - 1, 1)[0], step - 1);
    ScoreAll();
    Train(step);
  }
  for (const int32_t index : slow.missing) {
    ASSERT_TRUE(store().PutSample(slow.token, index, Continued(ResponseAt(0, 3), 2, 2)).ok());
  }
  ScoreAll();
  const NextBatchReply batch = NextBatch(3);
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_EQ(batch.groups[0].samples[0].loss_mask, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(batch.groups[0].samples[0].min_version, 2);
  Train(3);
  const LedgerRow row = Ledger().back();
  EXPECT_EQ(row.loss_tokens, 2);
  EXPECT_EQ(row.masked_tokens, 3);
  EXPECT_EQ(row.min_version, 2);
  EXPECT_EQ(row.spans.size(), 2u);
}

TEST_P(TrajectoryStoreContract, MaskDropsGroupsWithoutATokenLeft) {
  options_.staleness.disposition = Disposition::kMask;
  options_.staleness.groups_per_step = 1;
  OpenEpoch();
  PutPrompts(6);
  const GroupLease slow = Lease(0, 1)[0];
  for (int64_t step = 1; step <= 2; ++step) {
    Finish(Lease(step - 1, 1)[0], step - 1);
    ScoreAll();
    Train(step);
  }
  Finish(slow, 0);
  ScoreAll();
  EXPECT_EQ(Now(GroupState::kDropped), 1);
  EXPECT_EQ(Ledger().back().reason, "fully_masked");
  EXPECT_EQ(Ledger().back().masked_tokens, 3);
}

TEST_P(TrajectoryStoreContract, ExplainNamesTheBlockingEdge) {
  EXPECT_EQ(store().Explain()->edge, "prompts");
  PutPrompts(3);
  EXPECT_EQ(store().Explain()->edge, "rollout");
  const GroupLease lease = Lease(0, 1, "w7")[0];
  clock_.Advance(absl::Seconds(5));
  Explanation explanation = *store().Explain();
  EXPECT_EQ(explanation.edge, "rollout");
  EXPECT_NE(explanation.text.find("leased to w7 since 5s, 0 of 2 samples finished"),
            std::string::npos)
      << explanation.text;
  Finish(lease, 0);
  explanation = *store().Explain();
  EXPECT_EQ(explanation.edge, "reward");
  EXPECT_NE(explanation.text.find("2 rows unscored"), std::string::npos) << explanation.text;
  Finish(Lease(0, 1)[0], 0);
  ScoreAll();
  EXPECT_EQ(store().Explain()->edge, "trainer");
  OpenEpoch();
  ASSERT_TRUE(NextBatch(1).ready);
  explanation = *store().Explain();
  EXPECT_EQ(explanation.edge, "trainer");
  EXPECT_NE(explanation.text.find("claimed by epoch 1"), std::string::npos) << explanation.text;
}

TEST_P(TrajectoryStoreContract, ExplainNamesAFullStoreAndALaggingEngine) {
  options_.capacity_groups = 4;
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  Produce(2, 1);
  Train(2);
  EXPECT_EQ(store().Explain()->edge, "store");
  ASSERT_TRUE(store().MarkDurable(epoch_, 2, "sha").ok());
  PutPrompts(1);
  EXPECT_TRUE(Ask(0, 1, "late").leases.empty());
  const Explanation explanation = *store().Explain();
  EXPECT_EQ(explanation.edge, "rollout");
  EXPECT_NE(explanation.text.find("late at version 0"), std::string::npos) << explanation.text;
}

TEST_P(TrajectoryStoreContract, ExplainNamesKeptGroups) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
  PassLease();
  EXPECT_NE(store().Explain()->text.find("waits in the queue"), std::string::npos);
}

TEST_P(TrajectoryStoreContract, StatsTimeTheStates) {
  PutPrompts(1);
  clock_.Advance(absl::Seconds(2));
  const GroupLease lease = Lease(0, 1)[0];
  clock_.Advance(absl::Seconds(3));
  Finish(lease, 0);
  const StoreStats stats = Stats();
  EXPECT_EQ(stats.time_in_state[static_cast<int>(GroupState::kQueued)], absl::Seconds(2));
  EXPECT_EQ(stats.time_in_state[static_cast<int>(GroupState::kLeased)], absl::Seconds(3));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_BATCH_CONTRACT_H_
