#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CURATION_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CURATION_CONTRACT_H_

// Contract tests: filters by the mean reward, the success pool, and groups of adaptive size.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

// B = 1, G = 2, eta = 1; a success has reward 1 and is replayed up to age 4.
class TrajectoryStoreCurationContract : public TrajectoryStoreContract {
 protected:
  TrajectoryStoreCurationContract() {
    options_.staleness.groups_per_step = 1;
    options_.replay = ReplayOptions{4, 1.0, 8, 1};
  }

  // Generates a group of the dataset row `row` at `version` and scores it. Sample i has 3 + i
  // tokens with the id 10 * ordinal + i. With `together`, all samples are put at once with their
  // scores.
  int64_t Group(int64_t row, int64_t version, const std::vector<double>& rewards,
                bool together = false) {
    Prompt prompt = PromptAt(next_ordinal_++);
    prompt.attributes["answer"] = StrCat(row);
    EXPECT_EQ(store().PutPrompts({prompt})->accepted, 1);
    const GroupLease lease = lease_ = Lease(version, 1)[0];
    puts_.clear();
    for (size_t i = 0; i < rewards.size(); ++i) {
      Response response = ResponseAt(version, 3 + static_cast<int32_t>(i), lineage_);
      for (int32_t& id : response.response_ids) {
        id = static_cast<int32_t>(10 * prompt.ordinal + static_cast<int64_t>(i));
      }
      puts_.push_back({lease.token, static_cast<int32_t>(i),
                       std::make_shared<const Response>(std::move(response)),
                       together ? ScoreOf(rewards[i]).score : nullptr});
    }
    PutAgain();
    for (const RowLease& lease_of_row : Rows(Task::kScore)) {
      const auto index = static_cast<size_t>(lease_of_row.sample.key.index);
      const absl::Status status =
          store().PutFields(Task::kScore, lease_of_row.token, ScoreOf(rewards[index]));
      EXPECT_TRUE(status.ok()) << status;
    }
    return lease.ordinal;
  }
  // Puts the samples of the last group.
  void PutAgain() {
    const auto statuses = store().PutSamples(puts_);
    ASSERT_TRUE(statuses.ok()) << statuses.status();
    for (const absl::Status& status : *statuses) EXPECT_TRUE(status.ok()) << status;
  }
  // Trains steps first..last on groups of rows that occur once, without success.
  void TrainOthers(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      Group(100 + step, step - 1, {0, 0.5});
      Train(step);
    }
  }

  // G = 4; the pool replays nothing.
  void Adapt() {
    options_.group_size = 4;
    options_.replay.reset();
    options_.adaptive = AdaptiveOptions{2, 1.0, 2.0};
    OpenEpoch();
  }
  // Leases a group of the dataset row `row`.
  GroupLease LeaseOf(int64_t row, int64_t version, const std::string& task = "") {
    Prompt prompt = PromptAt(next_ordinal_++);
    prompt.attributes["answer"] = StrCat(row);
    if (!task.empty()) prompt.attributes["task"] = task;
    EXPECT_EQ(store().PutPrompts({prompt})->accepted, 1);
    return Lease(version, 1)[0];
  }

  std::vector<SamplePut> puts_;  // of the last group
  GroupLease lease_;
};

TEST_P(TrajectoryStoreContract, GroupsAreFilteredByTheirMeanReward) {
  options_.filter = {true, 0.25, 0.75};
  options_.max_filtered_in_a_row = 3;
  OpenEpoch();
  const std::vector<std::vector<double>> rewards = {{0, 0}, {1, 1}, {0.5, 0.5}};
  for (const std::vector<double>& group : rewards) {
    EXPECT_FALSE(NextBatch(1).paused);
    PutPrompts(1);
    Finish(Lease(0, 1)[0], 0);
    for (const RowLease& row : Rows(Task::kScore)) {
      ASSERT_TRUE(store()
                      .PutFields(Task::kScore, row.token,
                                 ScoreOf(group[static_cast<size_t>(row.sample.key.index)]))
                      .ok());
    }
  }
  EXPECT_EQ(
      Stats().ended_by_reason,
      (std::vector<std::pair<std::string, int64_t>>{
          {"filtered(too_easy)", 1}, {"filtered(too_hard)", 1}, {"filtered(zero_variance)", 1}}));
  EXPECT_EQ(Stats().outstanding, 0) << "others are admitted instead";
  EXPECT_EQ(Ledger(LedgerEvent::kFiltered)[0].reason, "too_hard");
  EXPECT_TRUE(NextBatch(1).paused) << "all rules count";
  EXPECT_EQ(store().Explain()->text, StrCat("job paused: ", FilteredText(3)));
}

TEST_P(TrajectoryStoreCurationContract, ASuccessReplacesTheWorstSampleOfALaterGroup) {
  OpenEpoch();
  Group(0, 0, {0, 1});
  EXPECT_EQ(Stats().pooled_successes, 1);
  Train(1);
  TrainOthers(2, 2);
  const int64_t ordinal = Group(0, 2, {0.5, 0.25});
  EXPECT_EQ(Stats().replayed_samples, 1);
  const NextBatchReply batch = NextBatch(3);
  ASSERT_TRUE(batch.ready) << batch.reason;
  ASSERT_EQ(batch.groups[0].ordinal, ordinal);
  const auto& samples = batch.groups[0].samples;
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].sample.replay_of, "");
  EXPECT_EQ(samples[0].sample.score->reward, 0.5);
  const TrainSample& copy = samples[1];
  EXPECT_EQ(copy.sample.replay_of, "job/0/0/1");
  EXPECT_EQ(copy.sample.uid, StrCat("job/", ordinal, "/0/3"));
  EXPECT_EQ(copy.sample.key, (SampleKey{ordinal, 0, 3}));
  EXPECT_EQ(copy.sample.score->reward, 1.0);
  EXPECT_EQ(copy.sample.response->response_ids, std::vector<int32_t>(4, 1));
  EXPECT_EQ(copy.sample.prompt->ordinal, ordinal);
  EXPECT_EQ(copy.min_version, 0) << "older than the bound 1";
  const auto read = store().ReadSamples({copy.sample.key});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->front().replay_of, "job/0/0/1");
  EXPECT_EQ(read->front().response->response_ids, copy.sample.response->response_ids);
  EXPECT_TRUE(absl::IsNotFound(store().ReadSamples({{ordinal, 0, 1}}).status())) << "replaced";
  const std::vector<LedgerRow> replaced = Ledger(LedgerEvent::kDropped);
  ASSERT_EQ(replaced.size(), 1u);
  EXPECT_EQ(replaced[0].uid, StrCat("job/", ordinal, "/0/1"));
  EXPECT_EQ(replaced[0].reason, "replaced");
  EXPECT_EQ(Stats().discarded_tokens, 4);
  // The digest covers the new uid.
  const CommitReceipt receipt = Train(3);
  const std::vector<LedgerRow> trained = Ledger(LedgerEvent::kTrained);
  std::string digest = InitialDigest();
  for (const LedgerRow& row : trained) digest = ExtendDigest(digest, row.uid);
  EXPECT_EQ(receipt.digest, digest);
  EXPECT_EQ(trained.back().uid, copy.sample.uid);
  EXPECT_EQ(trained.back().sample, 3);
  EXPECT_EQ(trained.back().replay_of, "job/0/0/1");
  EXPECT_EQ(trained.back().min_version, 0);
  EXPECT_EQ(trained.back().loss_tokens, 4);
  EXPECT_EQ(Ledger()[0].replay_max_age, 4);
  // A redo trains on the same samples.
  const auto opened = store().OpenEpoch("t1", {0, 2});
  ASSERT_TRUE(opened.ok()) << opened.status();
  epoch_ = opened->epoch;
  ASSERT_EQ(opened->redo.size(), 1u);
  EXPECT_EQ(opened->redo[0].uids,
            (std::vector<std::string>{samples[0].sample.uid, copy.sample.uid}));
  const NextBatchReply again = NextBatch(3);
  EXPECT_EQ(again.groups[0].samples[1].sample.replay_of, "job/0/0/1");
  EXPECT_EQ(again.groups[0].samples[1].sample.response->response_ids, std::vector<int32_t>(4, 1));
}

TEST_P(TrajectoryStoreCurationContract, ASuccessWithoutLossIsNotKept) {
  OpenEpoch();
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_TRUE(store().PutSample(lease.token, 0, NotAskedAt(0)).ok());
  EXPECT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());
  for (const RowLease& row : Rows(Task::kScore)) {
    const double reward = row.sample.key.index == 0 ? 1 : 0;
    EXPECT_TRUE(store().PutFields(Task::kScore, row.token, ScoreOf(reward)).ok());
  }
  EXPECT_EQ(Now(GroupState::kReady), 1);
  EXPECT_EQ(Stats().pooled_successes, 0);
}

TEST_P(TrajectoryStoreCurationContract, TheSuccessOutlivesItsGroup) {
  OpenEpoch();
  Group(0, 0, {1, 0});
  Train(1);
  TrainOthers(2, 3);
  for (int64_t version = 1; version <= 3; ++version) {
    ASSERT_TRUE(store().MarkDurable(epoch_, version, "sha").ok());
  }
  clock_.Advance(absl::Minutes(5));
  ASSERT_TRUE(store().Sweep().ok());
  Group(0, 3, {0, 0}, /*together=*/true);
  const NextBatchReply batch = NextBatch(4);
  ASSERT_TRUE(batch.ready) << batch.reason;
  const SampleView& copy = batch.groups[0].samples[1].sample;
  EXPECT_EQ(copy.replay_of, "job/0/0/0");
  EXPECT_EQ(copy.response->response_ids, std::vector<int32_t>(3, 0));
  EXPECT_EQ(copy.score->reward, 1.0);
}

TEST_P(TrajectoryStoreCurationContract, OnlyGroupsOfTheSameRowWithoutSuccessReplayOne) {
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  Group(7, 1, {0, 0});
  Group(0, 1, {0, 1});
  EXPECT_EQ(Stats().replayed_samples, 0);
}

TEST_P(TrajectoryStoreCurationContract, ASuccessOfManyIsNotKept) {
  Group(0, 0, {1, 1});
  Group(0, 0, {0, 0});
  EXPECT_EQ(Stats().pooled_successes, 0);
  EXPECT_EQ(Stats().replayed_samples, 0);
}

TEST_P(TrajectoryStoreCurationContract, ASuccessThatIsTooOldIsNotReplayed) {
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  TrainOthers(2, 4);
  Group(0, 4, {0, 0});  // may be trained from version 5 on: its success would be 5 versions old
  EXPECT_EQ(Stats().replayed_samples, 0);
  EXPECT_EQ(Stats().pooled_successes, 1);
  Train(5);
  Group(7, 5, {0, 1});
  EXPECT_EQ(Stats().pooled_successes, 1) << "the one that is too old is removed";
}

TEST_P(TrajectoryStoreCurationContract, AReplayedSampleIsNotTooOldBeforeItsGroupIs) {
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  TrainOthers(2, 3);
  Group(7, 3, {0, 0.5});
  Group(0, 3, {0, 0});
  EXPECT_EQ(Stats().replayed_samples, 1);
  Train(4);
  const NextBatchReply batch = NextBatch(5);  // the last chance of the group
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_EQ(batch.groups[0].samples[1].min_version, 0);
}

TEST_P(TrajectoryStoreCurationContract, ThePolicyMaskDoesNotMaskReplayedTokens) {
  options_.staleness.disposition = Disposition::kMask;
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  TrainOthers(2, 3);
  Group(0, 3, {0, 0});
  const NextBatchReply batch = NextBatch(4);
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_EQ(batch.groups[0].samples[1].sample.replay_of, "job/0/0/1");
  EXPECT_EQ(batch.groups[0].samples[1].loss_mask, std::vector<uint8_t>(4, 1));
  Train(4);
  EXPECT_EQ(Ledger(LedgerEvent::kTrained).back().masked_tokens, 0);
  EXPECT_EQ(Ledger(LedgerEvent::kTrained).back().min_version, 0);
}

TEST_P(TrajectoryStoreCurationContract, ThePoolIsBoundedAndRemovesTheOldest) {
  options_.replay->capacity = 1;
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  Group(7, 1, {0, 1});
  EXPECT_EQ(Stats().pooled_successes, 1);
  Group(0, 1, {0, 0});
  EXPECT_EQ(Stats().replayed_samples, 0);
  Train(2);
  Group(7, 2, {0, 0});
  EXPECT_EQ(Stats().replayed_samples, 1);
}

TEST_P(TrajectoryStoreCurationContract, ReplayComesBeforeTheFilter) {
  options_.filter.zero_variance = true;
  OpenEpoch();
  Group(0, 0, {0, 1});
  Train(1);
  Group(7, 1, {0, 0});
  Group(0, 1, {0, 0});
  EXPECT_EQ(Stats().ended_by_reason,
            (std::vector<std::pair<std::string, int64_t>>{{"filtered(zero_variance)", 1}}));
  EXPECT_EQ(Ordinals(NextBatch(2)), std::vector<int64_t>{2});
}

TEST_P(TrajectoryStoreCurationContract, AReplayedSampleOfAFilteredGroupHasItsOwnRow) {
  options_.filter.min_mean = 0.75;
  Group(0, 0, {0, 1});
  Group(0, 0, {0, 0});
  const std::vector<LedgerRow> rows = Ledger(LedgerEvent::kFiltered);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].uid, "job/1/0/0");
  EXPECT_EQ(rows[3].uid, "job/1/0/3");
  EXPECT_EQ(rows[3].replay_of, "job/0/0/1");
  EXPECT_EQ(rows[3].reason, "too_hard");
  EXPECT_EQ(Ledger(LedgerEvent::kDropped)[0].uid, "job/1/0/1");
  EXPECT_EQ(Stats().outstanding, 0);
}

TEST_P(TrajectoryStoreCurationContract, PuttingTheReplacedSampleAgainChangesNothing) {
  Group(0, 0, {0, 1});
  Group(0, 0, {0, 0});
  ASSERT_EQ(Stats().replayed_samples, 1);
  PutAgain();
  EXPECT_EQ(Stats().duplicate_puts, 2);
  EXPECT_EQ(Stats().samples_put, 4);
  EXPECT_EQ(Stats().replayed_samples, 1);
}

TEST_P(TrajectoryStoreCurationContract, ARowThatSucceedsHasFewerAndLimitedSamples) {
  Adapt();
  Group(0, 0, {1, 1, 1, 1});
  EXPECT_THAT(lease_.missing, SizeIs(4)) << "nothing is known";
  EXPECT_EQ(lease_.max_new_tokens, 0);
  Train(1);
  const int64_t ordinal = Group(0, 1, {1, 0});
  EXPECT_THAT(lease_.missing, ElementsAre(0, 1));
  EXPECT_EQ(lease_.max_new_tokens, 12) << "twice the longest success, of 6 tokens";
  EXPECT_EQ(Stats().skipped_samples, 2);
  EXPECT_EQ(Stats().limited_groups, 1);
  EXPECT_EQ(store().PutSample(lease_.token, 2, ResponseAt(1)).code(), kInvalid);
  const NextBatchReply batch = NextBatch(2);
  ASSERT_TRUE(batch.ready) << batch.reason;
  EXPECT_THAT(batch.groups[0].samples, SizeIs(2));
  const CommitReceipt receipt = Train(2);
  EXPECT_EQ(Stats().trained_samples, 6);
  EXPECT_EQ(Ledger()[0].min_group_size, 2);
  const std::vector<LedgerRow> trained = Ledger(LedgerEvent::kTrained);
  ASSERT_THAT(trained, SizeIs(6));
  EXPECT_EQ(trained[3].samples, 0);
  EXPECT_EQ(trained[4].samples, 2);
  std::string digest = InitialDigest();
  for (const LedgerRow& row : trained) digest = ExtendDigest(digest, row.uid);
  EXPECT_EQ(receipt.digest, digest);
  // A redo trains on the same samples.
  const auto opened = store().OpenEpoch("t1", {0, 1});
  ASSERT_TRUE(opened.ok()) << opened.status();
  epoch_ = opened->epoch;
  EXPECT_EQ(opened->redo[0].uids, (std::vector<std::string>{StrCat("job/", ordinal, "/0/0"),
                                                            StrCat("job/", ordinal, "/0/1")}));
  EXPECT_THAT(NextBatch(2).groups[0].samples, SizeIs(2));
  Train(2);
  EXPECT_EQ(Ledger(LedgerEvent::kTrained).back().samples, 2);
}

TEST_P(TrajectoryStoreCurationContract, ARowWithoutHistoryHasThatOfItsTask) {
  options_.staleness.groups_per_step = 2;
  Adapt();
  Group(0, 0, {1, 1, 1, 1});
  EXPECT_THAT(LeaseOf(7, 0).missing, SizeIs(2)) << "it has no task, as row 0";
  EXPECT_THAT(LeaseOf(8, 0, "other").missing, SizeIs(4));
}

TEST_P(TrajectoryStoreCurationContract, FilteredGroupsCountAsWell) {
  options_.filter.zero_variance = true;
  Adapt();
  Group(0, 0, {1, 1, 1, 1});
  EXPECT_EQ(Stats().outstanding, 0);
  EXPECT_THAT(LeaseOf(0, 0).missing, SizeIs(2));
}

TEST_P(TrajectoryStoreCurationContract, AnAttemptKeepsItsSizeAndTheNextOneGetsItsOwn) {
  options_.staleness.groups_per_step = 2;
  Adapt();
  Group(0, 0, {1, 1, 1, 1});
  const GroupLease smaller = LeaseOf(0, 0);
  ASSERT_THAT(smaller.missing, SizeIs(2));
  ASSERT_TRUE(store().PutSample(smaller.token, 1, ResponseAt(0)).ok());
  Group(0, 0, {0, 0});  // less than half of the row's samples succeed on average
  ASSERT_TRUE(store().ReturnLease(smaller.token, {}, {}).ok());
  const GroupLease kept = Lease(0, 1)[0];
  EXPECT_EQ(kept.ordinal, smaller.ordinal);
  EXPECT_THAT(kept.missing, ElementsAre(0));
  EXPECT_EQ(kept.max_new_tokens, smaller.max_new_tokens);
  const GroupLease whole = LeaseOf(0, 0);
  EXPECT_THAT(whole.missing, SizeIs(4));
}

TEST_P(TrajectoryStoreCurationContract, SamplesThatSmallerGroupsDoNotHaveAreCountedByState) {
  Adapt();
  const auto skipped = [this](GroupState state) {
    return Stats().skipped[static_cast<size_t>(state)];
  };
  Group(0, 0, {1, 1, 1, 1});
  Train(1);
  EXPECT_EQ(skipped(GroupState::kTrained), 0);
  const GroupLease lease = LeaseOf(0, 1);
  EXPECT_EQ(skipped(GroupState::kLeased), 2);
  ASSERT_TRUE(store().ReturnLease(lease.token, {}, {}).ok());
  EXPECT_EQ(skipped(GroupState::kLeased), 0);
  EXPECT_EQ(skipped(GroupState::kRequeued), 0) << "the next attempt's size is not decided";
  EXPECT_EQ(Stats().skipped_by_reason,
            (std::vector<std::pair<std::string, int64_t>>{{"requeued(returned)", 2}}));
  EXPECT_EQ(Group(0, 1, {1, 0}), lease.ordinal);
  EXPECT_EQ(skipped(GroupState::kReady), 2);
  ASSERT_TRUE(NextBatch(2).ready);
  EXPECT_EQ(skipped(GroupState::kReady), 0);
  EXPECT_EQ(skipped(GroupState::kClaimed), 2);
  Train(2);
  EXPECT_EQ(skipped(GroupState::kClaimed), 0);
  EXPECT_EQ(skipped(GroupState::kTrained), 2);
  ASSERT_TRUE(store().MarkDurable(epoch_, 2, "sha").ok());
  EXPECT_EQ(skipped(GroupState::kTrained), 0);
  EXPECT_EQ(skipped(GroupState::kDurable), 2);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CURATION_CONTRACT_H_
