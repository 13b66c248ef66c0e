#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PUTS_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PUTS_CONTRACT_H_

// Contract tests: batched puts of samples and of row fields, and the totals of generation.

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

inline SamplePut PutOf(int64_t token, int32_t index, Response response, FieldValues values = {}) {
  return {token, index, std::make_shared<const Response>(std::move(response)),
          std::move(values.score)};
}

inline std::vector<absl::StatusCode> Codes(
    const absl::StatusOr<std::vector<absl::Status>>& statuses) {
  std::vector<absl::StatusCode> codes;
  EXPECT_TRUE(statuses.ok()) << statuses.status();
  if (!statuses.ok()) return codes;
  for (const absl::Status& status : *statuses) codes.push_back(status.code());
  return codes;
}

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;

TEST_P(TrajectoryStoreContract, NoPutsAreNoWork) {
  EXPECT_THAT(Codes(store().PutSamples({})), IsEmpty());
  EXPECT_THAT(Codes(store().PutRows(Task::kScore, {})), IsEmpty());
}

TEST_P(TrajectoryStoreContract, EachSampleOfACallHasAnAnswerOfItsOwn) {
  PutPrompts(3);
  const auto leases = Lease(0, 3);
  Response malformed = ResponseAt(0);
  malformed.behavior_logprobs.pop_back();
  EXPECT_THAT(Codes(store().PutSamples({PutOf(leases[0].token, 0, ResponseAt(0)),
                                        PutOf(leases[1].token, 5, ResponseAt(0)),
                                        PutOf(leases[1].token, 0, malformed),
                                        PutOf(leases[1].token, 1, ResponseAt(1)),
                                        PutOf(999, 0, ResponseAt(0)),
                                        {leases[2].token, 0, nullptr},
                                        PutOf(leases[2].token, 1, ResponseAt(0)),
                                        PutOf(leases[0].token, 1, ResponseAt(0))})),
              ElementsAre(kOk, kInvalid, kInvalid, kInvalid, kPrecondition, kInvalid, kOk, kOk));
  EXPECT_EQ(Stats().samples_put, 3);
  EXPECT_EQ(Stats().fenced_puts, 1);
  EXPECT_EQ(Now(GroupState::kGenerated), 1);
  EXPECT_EQ(Now(GroupState::kLeased), 2);
  EXPECT_THAT(Rows(Task::kScore), SizeIs(3));
}

TEST_P(TrajectoryStoreContract, ASampleTwiceInOneCallIsOneSample) {
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  EXPECT_THAT(
      Codes(store().PutSamples(
          {PutOf(leases[0].token, 0, ResponseAt(0, 3)), PutOf(leases[0].token, 0, ResponseAt(0, 3)),
           PutOf(leases[0].token, 1, ResponseAt(0, 4)), PutOf(leases[0].token, 1, ResponseAt(0, 4)),
           PutOf(leases[1].token, 0, ResponseAt(0, 5)),
           PutOf(leases[0].token, 0, ResponseAt(0, 3))})),
      ElementsAre(kOk, kOk, kOk, kOk, kOk, kOk));
  EXPECT_EQ(Stats().samples_put, 3);
  EXPECT_EQ(Stats().duplicate_puts, 3);
}

TEST_P(TrajectoryStoreContract, OneCallTakesMoreSamplesThanOneMessageHolds) {
  options_.group_size = 300;
  PutPrompts(2);
  std::vector<SamplePut> puts;
  for (const GroupLease& lease : Lease(0, 2)) {
    for (const int32_t index : lease.missing) {
      puts.push_back(PutOf(lease.token, index, ResponseAt(0, 1 + index % 7)));
    }
  }
  const auto statuses = store().PutSamples(puts);
  ASSERT_TRUE(statuses.ok()) << statuses.status();
  ASSERT_EQ(statuses->size(), 600u);
  for (const absl::Status& status : *statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Now(GroupState::kGenerated), 2);
  std::vector<RowPut> rows;
  for (const RowLease& row : Rows(Task::kScore)) {
    EXPECT_EQ(row.sample.response->response_ids.size(),
              static_cast<size_t>(1 + row.sample.key.index % 7));
    rows.push_back({row.token, ScoreOf(row.sample.key.index)});
  }
  ASSERT_EQ(rows.size(), 600u);
  const auto scored = store().PutRows(Task::kScore, rows);
  ASSERT_TRUE(scored.ok()) << scored.status();
  for (const absl::Status& status : *scored) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Now(GroupState::kReady), 2);
}

TEST_P(TrajectoryStoreContract, OnlyASampleThatWasNotAskedForHasNoLoss) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(2);
  const std::vector<GroupLease> leases = Lease(1, 2);
  Response silent = NotAskedAt(1);
  silent.finish = FinishReason::kStop;
  EXPECT_EQ(store().PutSample(leases[0].token, 0, silent).code(), kInvalid);
  Response spoken = ResponseAt(1);
  spoken.finish = FinishReason::kNotAsked;
  EXPECT_EQ(store().PutSample(leases[0].token, 0, spoken).code(), kInvalid);
  EXPECT_EQ(store().PutSample(leases[0].token, 0, NotAskedAt(1)).code(), kOk);
  EXPECT_EQ(store().PutSample(leases[0].token, 1, ResponseAt(1)).code(), kOk);
  EXPECT_EQ(store().PutSample(leases[1].token, 0, NotAskedAt(1)).code(), kOk);
  EXPECT_EQ(store().PutSample(leases[1].token, 1, NotAskedAt(1)).code(), kOk);
  std::vector<RowPut> rows;
  for (const RowLease& row : Rows(Task::kScore)) rows.push_back({row.token, ScoreOf(1)});
  ASSERT_EQ(rows.size(), 4U);
  ASSERT_TRUE(store().PutRows(Task::kScore, rows).ok());
  const NextBatchReply batch = NextBatch(2);
  ASSERT_TRUE(batch.ready) << batch.reason;
  const TrainSample& sample = batch.groups[0].samples[0];
  EXPECT_EQ(sample.sample.response->finish, FinishReason::kNotAsked);
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 0}));
  Train(2);
  const std::vector<LedgerRow> trained = Ledger(LedgerEvent::kTrained);
  ASSERT_EQ(trained.size(), 8U);
  EXPECT_EQ(trained[4].loss_tokens, 0);
  EXPECT_EQ(trained[4].masked_tokens, 0);
  EXPECT_EQ(trained[4].min_version, 1);
  EXPECT_EQ(trained[5].loss_tokens, 3);
}

TEST_P(TrajectoryStoreContract, ACallIsOneChange) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  const uint64_t rows = store().ChangeCount(Topic::kRows);
  const uint64_t batch = store().ChangeCount(Topic::kBatch);
  EXPECT_THAT(Codes(store().PutSamples(
                  {PutOf(lease.token, 0, ResponseAt(0)), PutOf(lease.token, 1, ResponseAt(0))})),
              ElementsAre(kOk, kOk));
  EXPECT_EQ(store().ChangeCount(Topic::kRows), rows + 1);
  EXPECT_EQ(store().ChangeCount(Topic::kBatch), batch + 1);
}

TEST_P(TrajectoryStoreContract, EachRowOfACallHasAnAnswerOfItsOwn) {
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  for (const GroupLease& lease : leases) Finish(lease, 0);
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 4u);
  // Rows 0 and 1 belong to one group, rows 2 and 3 to the other.
  EXPECT_THAT(Codes(store().PutRows(Task::kScore, {{rows[0].token, ScoreOf(1)},
                                                   {rows[2].token, ScoreOf(NAN)},
                                                   {rows[0].token, ScoreOf(2)},
                                                   {999, ScoreOf(0)},
                                                   {rows[3].token, ScoreOf(0)},
                                                   {rows[1].token, ScoreOf(0)},
                                                   {rows[0].token, ScoreOf(3)},
                                                   {rows[2].token, {}}})),
              ElementsAre(kOk, kInvalid, kOk, kPrecondition, kOk, kOk, kOk, kInvalid));
  EXPECT_EQ(Now(GroupState::kReady), 1);
  EXPECT_EQ(Now(GroupState::kGenerated), 1);
  EXPECT_THAT(Codes(store().PutRows(Task::kScore, {{rows[2].token, ScoreOf(1)}})),
              ElementsAre(kOk));
  EXPECT_EQ(Now(GroupState::kReady), 2);
}

TEST_P(TrajectoryStoreContract, ARowWhoseGroupTheCallItselfHasFilteredIsDead) {
  options_.filter.zero_variance = true;
  PutPrompts(2);
  for (const GroupLease& lease : Lease(0, 2)) Finish(lease, 0);
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(Codes(store().PutRows(Task::kScore, {{rows[0].token, ScoreOf(1)},
                                                   {rows[1].token, ScoreOf(1)},
                                                   {rows[0].token, ScoreOf(1)},
                                                   {rows[2].token, ScoreOf(1)},
                                                   {rows[1].token, ScoreOf(1)},
                                                   {rows[3].token, ScoreOf(0)}})),
              ElementsAre(kOk, kOk, kPrecondition, kOk, kPrecondition, kOk));
  EXPECT_EQ(Stats().transitions[static_cast<int>(GroupState::kFiltered)], 1);
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, ASampleThatBringsItsScoreIsScoredAlready) {
  OpenEpoch();
  PutPrompts(2);
  const uint64_t rows = store().ChangeCount(Topic::kRows);
  for (const GroupLease& lease : Lease(0, 2)) {
    EXPECT_THAT(Codes(store().PutSamples({PutOf(lease.token, 0, ResponseAt(0), ScoreOf(1)),
                                          PutOf(lease.token, 1, ResponseAt(0), ScoreOf(0))})),
                ElementsAre(kOk, kOk));
  }
  EXPECT_EQ(store().ChangeCount(Topic::kRows), rows);
  EXPECT_THAT(Rows(Task::kScore), IsEmpty());
  const NextBatchReply batch = NextBatch(1);
  ASSERT_TRUE(batch.ready) << batch.reason;
  ASSERT_NE(batch.groups[1].samples[0].sample.score, nullptr);
  EXPECT_EQ(batch.groups[1].samples[0].sample.score->reward, 1);
}

TEST_P(TrajectoryStoreContract, AGroupMayBeScoredInBothWays) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_THAT(Codes(store().PutSamples({PutOf(lease.token, 0, ResponseAt(0), ScoreOf(1)),
                                        PutOf(lease.token, 1, ResponseAt(0))})),
              ElementsAre(kOk, kOk));
  EXPECT_EQ(Now(GroupState::kGenerated), 1);
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].sample.key.index, 1);
  EXPECT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(0)).ok());
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, ASampleWithAScoreThatIsNoneIsRefused) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_THAT(Codes(store().PutSamples(
                  {PutOf(lease.token, 0, ResponseAt(0), ScoreOf(NAN)),
                   PutOf(lease.token, 0, ResponseAt(0), ScoreOf(0, ScoreOutcome::kInfraError)),
                   PutOf(999, 0, ResponseAt(0), ScoreOf(NAN))})),
              ElementsAre(kInvalid, kInvalid, kPrecondition));
  EXPECT_EQ(Stats().samples_put, 0);
}

TEST_P(TrajectoryStoreContract, EqualScoresThatComeAlongFilterTheGroup) {
  options_.filter.zero_variance = true;
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  std::vector<SamplePut> puts;
  for (const GroupLease& lease : leases) {
    puts.push_back(PutOf(lease.token, 0, ResponseAt(0), ScoreOf(1)));
    puts.push_back(PutOf(lease.token, 1, ResponseAt(0), ScoreOf(lease.ordinal)));
  }
  puts.push_back(puts[3]);  // belongs to the filtered group
  EXPECT_THAT(Codes(store().PutSamples(puts)), ElementsAre(kOk, kOk, kOk, kOk, kPrecondition));
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, SamplesOfOneCallContinueKeptTokens) {
  PutPrompts(1);
  const GroupLease former = Lease(0, 1)[0];
  const Response partial = ResponseAt(0, 3);
  ASSERT_TRUE(store().ReturnLease(former.token, {0, 1}, {partial, partial}).ok());
  const GroupLease next = Lease(0, 1)[0];
  EXPECT_THAT(Codes(store().PutSamples({PutOf(next.token, 0, Continued(partial, 0)),
                                        PutOf(former.token, 1, partial),
                                        PutOf(next.token, 1, Continued(partial, 0, 4))})),
              ElementsAre(kOk, kPrecondition, kOk));
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.response->response_ids.size(), 5u);
  EXPECT_EQ(rows[1].sample.response->response_ids.size(), 7u);
}

TEST_P(TrajectoryStoreContract, GenerationIsAddedUp) {
  EXPECT_EQ(Stats().generation, GenerationTotals());
  const GenerationTotals one{100, absl::Microseconds(1'500'001), absl::Nanoseconds(2'999)};
  ASSERT_TRUE(store().CountGeneration(one).ok());
  EXPECT_EQ(Stats().generation,
            (GenerationTotals{100, absl::Microseconds(1'500'001), absl::Microseconds(2)}));
  const GenerationTotals other{int64_t{1} << 40, absl::Hours(10'000), absl::ZeroDuration()};
  ASSERT_TRUE(store().CountGeneration(other).ok());
  const GenerationTotals both{(int64_t{1} << 40) + 100,
                              absl::Hours(10'000) + absl::Microseconds(1'500'001),
                              absl::Microseconds(2)};
  EXPECT_EQ(Stats().generation, both);
  ASSERT_TRUE(store().CountGeneration({}).ok());
  EXPECT_EQ(Stats().generation, both);
}

TEST_P(TrajectoryStoreContract, NegativeGenerationIsRefusedAsAWhole) {
  ASSERT_TRUE(store().CountGeneration({5, absl::Seconds(6), absl::Seconds(7)}).ok());
  for (const GenerationTotals& negative :
       {GenerationTotals{-1, absl::Seconds(1), absl::Seconds(1)},
        GenerationTotals{1, -absl::Microseconds(1), absl::Seconds(1)},
        GenerationTotals{1, absl::Seconds(1), -absl::Microseconds(1)}}) {
    EXPECT_EQ(store().CountGeneration(negative).code(), kInvalid);
  }
  EXPECT_EQ(Stats().generation, (GenerationTotals{5, absl::Seconds(6), absl::Seconds(7)}));
}

TEST_P(TrajectoryStoreContract, CommitsAndEpochsKeepTheTotalsOfGeneration) {
  const GenerationTotals added{12, absl::Seconds(1), absl::Seconds(2)};
  OpenEpoch();
  Produce(2, 0);
  ASSERT_TRUE(store().CountGeneration(added).ok());
  Train(1);
  EXPECT_EQ(Stats().generation, added);
  ASSERT_TRUE(store().MarkDurable(epoch_, 1, "sha").ok());
  OpenEpoch(1);
  ASSERT_TRUE(store().RevokeWorker("w0").ok());
  EXPECT_EQ(Stats().generation, added);
  ASSERT_TRUE(store().CountGeneration(added).ok());
  EXPECT_EQ(Stats().generation, (GenerationTotals{24, absl::Seconds(2), absl::Seconds(4)}));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_PUTS_CONTRACT_H_
