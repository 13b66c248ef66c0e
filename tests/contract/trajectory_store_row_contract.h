#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_ROW_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_ROW_CONTRACT_H_

// Contract tests: row leases, scores, failures and filtering.

#include <cmath>
#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, RowsAreOfferedAsSoonAsTheirSampleIsFinished) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_TRUE(Rows(Task::kScore).empty());
  ASSERT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].sample.uid, "job/0/0/1");
  EXPECT_EQ(rows[0].sample.key, (SampleKey{0, 0, 1}));
  EXPECT_EQ(rows[0].sample.prompt->attributes.at("answer"), "0");
  EXPECT_EQ(rows[0].sample.response->response_ids.size(), 3u);
  EXPECT_EQ(rows[0].expires, clock_.Now() + options_.lease_ttl);
}

// The first token of each response that the lease shows.
inline std::vector<int32_t> ShownGroup(const RowLease& row) {
  std::vector<int32_t> shown;
  for (const auto& response : row.group) shown.push_back(response->response_ids.at(0));
  return shown;
}

TEST_P(TrajectoryStoreContract, RowsOfWholeGroupsWaitForTheirGroupAndShowIt) {
  options_.score_whole_groups = true;
  options_.max_row_failures = 3;
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  const auto response = [](int32_t first) {
    Response made = ResponseAt(0);
    made.response_ids[0] = first;
    return made;
  };
  ASSERT_TRUE(store().PutSample(lease.token, 1, response(11)).ok());
  EXPECT_TRUE(Rows(Task::kScore).empty());
  ASSERT_TRUE(store().PutSample(lease.token, 0, response(10)).ok());
  const auto first = store().LeaseRowsFor({Task::kScore, "r0", "a", 1});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 1u);
  EXPECT_EQ(first->at(0).sample.key, (SampleKey{0, 0, 0}));
  EXPECT_EQ(ShownGroup(first->at(0)), (std::vector<int32_t>{10, 11}));
  const auto again = store().LeaseRowsFor({Task::kScore, "r0", "a", 1});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->size(), 1u);
  EXPECT_EQ(ShownGroup(again->at(0)), (std::vector<int32_t>{10, 11}));
  ASSERT_TRUE(store().PutFields(Task::kScore, first->at(0).token, ScoreOf(1)).ok());
  auto second = Rows(Task::kScore);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(ShownGroup(second[0]), (std::vector<int32_t>{10, 11}));
  ASSERT_TRUE(store().FailRow(Task::kScore, second[0].token, "no route").ok());
  second = Rows(Task::kScore);
  ASSERT_EQ(second.size(), 1u) << "a row that failed is offered again";
  EXPECT_EQ(ShownGroup(second[0]), (std::vector<int32_t>{10, 11}));
  ASSERT_TRUE(store().PutFields(Task::kScore, second[0].token, ScoreOf(2)).ok());
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, RowsOfWholeGroupsWaitForTheSamplesOfALaterLease) {
  options_.score_whole_groups = true;
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  ASSERT_TRUE(store().PutSample(leases[0].token, 0, ResponseAt(0)).ok());
  ASSERT_TRUE(store().ReturnLease(leases[0].token, {}, {}).ok());
  EXPECT_TRUE(Rows(Task::kScore).empty());
  const GroupLease later = Lease(0, 1, "w1")[0];
  EXPECT_EQ(later.missing, (std::vector<int32_t>{1}));
  ASSERT_TRUE(store().PutSample(later.token, 1, ResponseAt(0)).ok());
  EXPECT_EQ(Rows(Task::kScore).size(), 2u);
  // A sample that comes with its score is not offered.
  const auto scored = std::make_shared<const Score>(Score{1.0, {}, ScoreOutcome::kOk});
  const auto bare = std::make_shared<const Response>(ResponseAt(0));
  const auto put =
      store().PutSamples({{leases[1].token, 0, bare, scored}, {leases[1].token, 1, bare, nullptr}});
  ASSERT_TRUE(put.ok()) << put.status();
  const auto rest = Rows(Task::kScore);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].sample.key, (SampleKey{1, 0, 1}));
}

TEST_P(TrajectoryStoreContract, StepRewardsStayWithResponseAndScore) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  Response response = ResponseAt(0);
  for (const std::vector<StepReward>& bad :
       {std::vector<StepReward>{{4, 1.0}}, {{0, 1.0}}, {{2, 1.0}, {2, 1.0}}, {{2, NAN}}}) {
    response.step_rewards = bad;
    EXPECT_EQ(store().PutSample(lease.token, 0, response).code(), kInvalid);
  }
  response.step_rewards = {{2, 0.25}, {3, -1.5}};
  ASSERT_TRUE(store().PutSample(lease.token, 0, response).ok());
  ASSERT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.response->step_rewards, response.step_rewards);
  Score score{2.0, {}, ScoreOutcome::kOk, {{2, 0.5}, {3, -3.0}}};
  ASSERT_TRUE(
      store().PutFields(Task::kScore, rows[0].token, {std::make_shared<const Score>(score)}).ok());
  score.step_rewards = {{3, 1.0}, {2, 1.0}};
  EXPECT_EQ(
      store().PutFields(Task::kScore, rows[1].token, {std::make_shared<const Score>(score)}).code(),
      kInvalid);
}

TEST_P(TrajectoryStoreContract, SamplingLogprobsStayWithTheirResponse) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  Response partial = ResponseAt(0, 2);
  partial.sampling_logprobs = {-0.25f, -0.125f};
  ASSERT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {partial}).ok());
  const GroupLease next = Lease(0, 1, "w1")[0];
  ASSERT_EQ(next.partials.size(), 1u);
  EXPECT_EQ(next.partials[0].sampling_logprobs, partial.sampling_logprobs);
  ASSERT_TRUE(store().PutSample(next.token, 0, partial).ok());
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.sample.response->sampling_logprobs,
              row.sample.key.index == 0 ? partial.sampling_logprobs : std::vector<float>{});
  }
}

TEST_P(TrajectoryStoreContract, EachRowIsHandedOutOnceAndOldestFirst) {
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  Finish(leases[1], 0);
  Finish(leases[0], 0);
  const auto first = Rows(Task::kScore, 3);
  const auto second = Rows(Task::kScore, 3, "r1");
  ASSERT_EQ(first.size(), 3u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].sample.key, (SampleKey{0, 0, 0}));
  EXPECT_EQ(first[2].sample.key, (SampleKey{1, 0, 0}));
  EXPECT_EQ(second[0].sample.key, (SampleKey{1, 0, 1}));
}

TEST_P(TrajectoryStoreContract, LeaseRowsRefusesANamelessWorkerAndNegativeCounts) {
  EXPECT_EQ(store().LeaseRows(Task::kScore, "", 1).status().code(), kInvalid);
  EXPECT_EQ(store().LeaseRows(Task::kScore, "r0", -1).status().code(), kInvalid);
}

TEST_P(TrajectoryStoreContract, PutFieldsIsIdempotentByToken) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto rows = Rows(Task::kScore);
  ASSERT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).ok());
  EXPECT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(2)).ok());
  EXPECT_EQ(store().FailRow(Task::kScore, rows[0].token, "late").code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, PutFieldsRefusesDeadTokens) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto rows = Rows(Task::kScore);
  EXPECT_EQ(store().PutFields(Task::kScore, 999, ScoreOf(1)).code(), kPrecondition);
  PassLease();
  EXPECT_EQ(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, PutFieldsRefusesBadValues) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const int64_t score = Rows(Task::kScore)[0].token;
  EXPECT_EQ(store().PutFields(Task::kScore, score, {}).code(), kInvalid);
  EXPECT_EQ(store().PutFields(Task::kScore, score, ScoreOf(NAN)).code(), kInvalid);
  EXPECT_EQ(store().PutFields(Task::kScore, score, ScoreOf(0, ScoreOutcome::kInfraError)).code(),
            kInvalid);
  EXPECT_TRUE(store().PutFields(Task::kScore, score, ScoreOf(0, ScoreOutcome::kWrongFormat)).ok());
}

TEST_P(TrajectoryStoreContract, AFailedRowIsTriedAgainAndThenKillsItsGroup) {
  options_.max_row_failures = 2;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  auto rows = Rows(Task::kScore);
  ASSERT_TRUE(store().FailRow(Task::kScore, rows[0].token, "no route").ok());
  const auto again = Rows(Task::kScore);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].sample.key, rows[0].sample.key);
  EXPECT_GT(again[0].token, rows[0].token);
  ASSERT_TRUE(store().FailRow(Task::kScore, again[0].token, "no route").ok());
  EXPECT_EQ(Now(GroupState::kDead), 1);
  EXPECT_EQ(Stats().outstanding, 0);
  const auto dead = Ledger(LedgerEvent::kDead);
  ASSERT_EQ(dead.size(), 2u);
  EXPECT_EQ(dead[0].reason, "score_failed: 2 times: no route");
  EXPECT_EQ(dead[1].uid, "job/0/0/1");
  EXPECT_EQ(store().PutFields(Task::kScore, rows[1].token, ScoreOf(1)).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, AnExpiredRowLeaseGoesToAnotherWorkerWithoutAFailure) {
  options_.max_row_failures = 1;
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  Finish(lease, 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Rows(Task::kScore, 1000, StrCat("r", i)), SizeIs(2));
    PassLease();
    EXPECT_EQ(*store().Sweep(), 2);
  }
  EXPECT_EQ(Now(GroupState::kDead), 0);
  ScoreAll();
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, ARowThatIsHandedBackComesAgainWithoutAFailure) {
  options_.max_row_failures = 1;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  for (int i = 0; i < 5; ++i) {
    const uint64_t seen = store().ChangeCount(Topic::kRows);
    const auto rows = Rows(Task::kScore, 1);
    ASSERT_THAT(rows, SizeIs(1));
    EXPECT_EQ(rows[0].sample.key.index, 0);
    EXPECT_TRUE(store().EndRow(Task::kScore, rows[0].token, RowEnd::kReturned, "").ok());
    EXPECT_GT(store().ChangeCount(Topic::kRows), seen);
    EXPECT_EQ(store().EndRow(Task::kScore, rows[0].token, RowEnd::kReturned, "").code(),
              kPrecondition);
  }
  ScoreAll();
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, WorkersDoNotReportTheirOwnLoss) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto rows = Rows(Task::kScore);
  EXPECT_EQ(store().EndRow(Task::kScore, rows[0].token, RowEnd::kExpired, "").code(), kInvalid);
  EXPECT_EQ(store().EndRow(Task::kScore, rows[0].token, RowEnd::kWorkerLost, "").code(), kInvalid);
  EXPECT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).ok());
}

TEST_P(TrajectoryStoreContract, ARepeatedRequestForRowsGetsTheSameLeases) {
  PutPrompts(2);
  for (const GroupLease& lease : Lease(0, 2)) Finish(lease, 0);
  const auto ask = [this](const std::string& id, int64_t n = 2, const std::string& worker = "r0") {
    return *store().LeaseRowsFor({Task::kScore, worker, id, n});
  };
  const auto tokens = [](const std::vector<RowLease>& rows) {
    std::vector<int64_t> all;
    for (const RowLease& row : rows) all.push_back(row.token);
    return all;
  };
  const auto first = ask("a");
  ASSERT_THAT(first, SizeIs(2));
  clock_.Advance(options_.lease_ttl / 2);
  const auto again = ask("a", 4);
  EXPECT_EQ(tokens(again), tokens(first));
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(again[1].sample.key, first[1].sample.key);
  EXPECT_EQ(again[1].sample.uid, first[1].sample.uid);
  EXPECT_EQ(again[1].sample.prompt->attributes, first[1].sample.prompt->attributes);
  EXPECT_EQ(again[1].sample.response->response_ids, first[1].sample.response->response_ids);
  EXPECT_EQ(again[1].expires, clock_.Now() + options_.lease_ttl) << "they are renewed";
  // Request ids are scoped by worker.
  const auto others = ask("a", 1, "r1");
  ASSERT_THAT(others, SizeIs(1));
  EXPECT_NE(others[0].sample.key, first[0].sample.key);
  EXPECT_NE(others[0].sample.key, first[1].sample.key);
  // A repeated request omits leases that have ended.
  ASSERT_TRUE(store().PutFields(Task::kScore, first[0].token, ScoreOf(1)).ok());
  EXPECT_EQ(tokens(ask("a")), std::vector<int64_t>{first[1].token});
  PassLease();
  EXPECT_THAT(ask("a"), IsEmpty());
  EXPECT_THAT(ask("b", 1000), SizeIs(3));
}

TEST_P(TrajectoryStoreContract, OnlyAnAnswerWithRowsIsRemembered) {
  PutPrompts(1);
  EXPECT_THAT(*store().LeaseRowsFor({Task::kScore, "r0", "a", 1}), IsEmpty());
  Finish(Lease(0, 1)[0], 0);
  const auto rows = *store().LeaseRowsFor({Task::kScore, "r0", "a", 1});
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].sample.key.index, 0);
  const auto other = *store().LeaseRowsFor({Task::kScore, "r0", "", 1});
  ASSERT_THAT(other, SizeIs(1));
  EXPECT_EQ(other[0].sample.key.index, 1);
  EXPECT_THAT(*store().LeaseRowsFor({Task::kScore, "r0", "", 1}), IsEmpty());
}

TEST_P(TrajectoryStoreContract, RenewExtendsRowLeases) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  const auto rows = Rows(Task::kScore);
  clock_.Advance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_TRUE(store().RenewLeases("r0", {rows[0].token})->empty());
  clock_.Advance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_TRUE(store().PutFields(Task::kScore, rows[0].token, ScoreOf(1)).ok());
  EXPECT_EQ(store().PutFields(Task::kScore, rows[1].token, ScoreOf(1)).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, RowsOfARequeuedGroupWithTokensStayScored) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
  ScoreAll();
  PassLease();
  Finish(Lease(0, 1, "w1")[0], 0);
  const auto rows = Rows(Task::kScore);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].sample.key.index, 1);
}

TEST_P(TrajectoryStoreContract, AGroupIsReadyWhenItsSamplesAreScored) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  EXPECT_EQ(Now(GroupState::kLeased), 1);
  Finish(lease, 0);
  EXPECT_EQ(Now(GroupState::kGenerated), 1);
  ScoreAll();
  EXPECT_EQ(Now(GroupState::kReady), 1);
  EXPECT_EQ(Stats().transitions[static_cast<int>(GroupState::kScored)], 1);
}

TEST_P(TrajectoryStoreContract, GroupsWithEqualRewardsAreFiltered) {
  options_.filter.zero_variance = true;
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  ScoreAll(/*same=*/true);
  EXPECT_EQ(Now(GroupState::kFiltered), 1);
  EXPECT_EQ(Stats().outstanding, 0);
  const auto rows = Ledger(LedgerEvent::kFiltered);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].uid, "job/0/0/1");
  EXPECT_EQ(rows[1].reason, "zero_variance");
  EXPECT_EQ(rows[1].loss_tokens, 3);
  EXPECT_EQ(Stats().ended_by_reason,
            (std::vector<std::pair<std::string, int64_t>>{{"filtered(zero_variance)", 1}}));
}

TEST_P(TrajectoryStoreContract, GroupsWithEqualRewardsAreTrainedWithoutTheFilter) {
  PutPrompts(1);
  Finish(Lease(0, 1)[0], 0);
  ScoreAll(/*same=*/true);
  EXPECT_EQ(Now(GroupState::kReady), 1);
}

TEST_P(TrajectoryStoreContract, TheJobPausesAfterManyFilteredGroupsInARow) {
  options_.filter.zero_variance = true;
  options_.max_filtered_in_a_row = 3;
  OpenEpoch();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(NextBatch(1).paused);
    PutPrompts(1);
    Finish(Lease(0, 1)[0], 0);
    ScoreAll(/*same=*/true);
  }
  const NextBatchReply reply = NextBatch(1);
  EXPECT_TRUE(reply.paused);
  EXPECT_FALSE(reply.ready);
  EXPECT_NE(reply.reason.find("the last 3 groups were filtered"), std::string::npos);
  PutPrompts(1);
  EXPECT_TRUE(Ask(0, 1).leases.empty());
  EXPECT_EQ(store().Explain()->edge, "paused");
}

TEST_P(TrajectoryStoreContract, AReadyGroupRestartsTheCountOfFilteredOnes) {
  options_.filter.zero_variance = true;
  options_.max_filtered_in_a_row = 2;
  OpenEpoch();
  for (const bool same : {true, false, true}) {
    PutPrompts(1);
    Finish(Lease(0, 1)[0], 0);
    ScoreAll(same);
  }
  EXPECT_FALSE(NextBatch(1).paused);
  EXPECT_EQ(Stats().filtered_in_a_row, 1);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_ROW_CONTRACT_H_
