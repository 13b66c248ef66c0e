#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_CONTRACT_H_

// Contract tests: renewal, expiry and return of rollout leases, and putting samples under them.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

TEST_P(TrajectoryStoreContract, RenewedLeasesLiveOn) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  clock_.Advance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_THAT(*store().RenewLeases("w0", {lease.token}), IsEmpty());
  clock_.Advance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_EQ(*store().Sweep(), 0);
  Finish(lease, 0);
}

TEST_P(TrajectoryStoreContract, RenewNamesTokensThatAreDeadOrForeign) {
  PutPrompts(2);
  const auto leases = Lease(0, 2);
  EXPECT_THAT(*store().RenewLeases("w1", {leases[0].token}), ElementsAre(leases[0].token));
  PassLease();
  EXPECT_THAT(*store().RenewLeases("w0", {leases[0].token, 999}),
              ElementsAre(leases[0].token, 999));
}

TEST_P(TrajectoryStoreContract, SweepCountsExpiredLeases) {
  PutPrompts(2);
  Lease(0, 2);
  EXPECT_EQ(*store().Sweep(), 0);
  PassLease();
  EXPECT_EQ(*store().Sweep(), 2);
  EXPECT_EQ(*store().Sweep(), 0);
  EXPECT_EQ(Stats().leases_expired, 2);
}

TEST_P(TrajectoryStoreContract, LeasesExpireWithoutASweepToo) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  PassLease();
  EXPECT_EQ(store().PutSample(lease.token, 0, ResponseAt(0)).code(), kPrecondition);
  EXPECT_EQ(Stats().fenced_puts, 1);
}

TEST_P(TrajectoryStoreContract, AnExpiredGroupWithoutTokensStartsANewAttempt) {
  PutPrompts(1);
  const GroupLease first = Lease(0, 1)[0];
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  EXPECT_EQ(Stats().outstanding, 0);
  const GroupLease second = Lease(0, 1)[0];
  EXPECT_EQ(second.ordinal, first.ordinal);
  EXPECT_EQ(second.attempt, first.attempt + 1);
  const auto rows = Ledger(LedgerEvent::kRequeued);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].uid, "job/0/0/0");
  EXPECT_EQ(rows[0].reason, "lease_expired");
  EXPECT_EQ(rows[0].loss_tokens, 0);
  EXPECT_THAT(rows[0].spans, IsEmpty());
}

TEST_P(TrajectoryStoreContract, FinishedSamplesOfAnExpiredLeaseAreKept) {
  PutPrompts(1);
  const GroupLease first = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(first.token, 1, ResponseAt(0)).ok());
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  EXPECT_EQ(Stats().outstanding, 1);
  EXPECT_EQ(Now(GroupState::kRequeued), 1);
  const GroupLease second = Lease(0, 1, "w1")[0];
  EXPECT_EQ(second.attempt, first.attempt);
  EXPECT_GT(second.token, first.token);
  EXPECT_THAT(second.missing, ElementsAre(0));
  EXPECT_THAT(Ledger(LedgerEvent::kRequeued), IsEmpty());
}

TEST_P(TrajectoryStoreContract, RequeuedGroupsWithTokensGoFirstAndKeepTheirSlot) {
  PutPrompts(10);
  const auto leases = Lease(0, 4);
  ASSERT_TRUE(store().ReturnLease(leases[2].token, {0}, {ResponseAt(0, 2)}).ok());
  EXPECT_EQ(Stats().outstanding, 4);
  const auto next = Lease(0, 1);  // the staleness bound allows no new group
  EXPECT_EQ(next[0].ordinal, 2);
  EXPECT_THAT(Ask(0, 1).leases, IsEmpty());
}

TEST_P(TrajectoryStoreContract, RequeuedGroupsWithTokensGoOnlyToEnginesNotOlderThanThem) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(1);
  const GroupLease lease = Lease(1, 1)[0];
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {ResponseAt(1)}).ok());
  const LeaseReply reply = Ask(0, 1, "late");
  EXPECT_EQ(reply.committed, (PolicyVersion{0, 1}));
  EXPECT_THAT(reply.leases, IsEmpty());
  EXPECT_THAT(reply.reason, HasSubstr("cannot continue"));
  EXPECT_THAT(Ask(1, 1).leases, SizeIs(1));
}

TEST_P(TrajectoryStoreContract, PartialsGoOnlyToEnginesNotOlderThanTheirNewestToken) {
  OpenEpoch();
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  Produce(2, 0);
  Train(1);
  const Response partial = Continued(ResponseAt(0), 1);
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {partial}).ok());
  EXPECT_THAT(Ask(0, 1, "late").leases, IsEmpty());
  const GroupLease next = Lease(1, 1)[0];
  EXPECT_TRUE(store().PutSample(next.token, 0, Continued(next.partials[0], 1)).ok());
}

TEST_P(TrajectoryStoreContract, ReturnedPartialsComeBackWithTheNextLease) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  const Response partial = ResponseAt(0, 2);
  ASSERT_TRUE(store().ReturnLease(lease.token, {1, 0}, {partial, Response{}}).ok());
  const GroupLease next = Lease(0, 1, "w1")[0];
  EXPECT_EQ(next.attempt, lease.attempt);
  EXPECT_THAT(next.missing, ElementsAre(0, 1));
  EXPECT_THAT(next.partials[0].response_ids, IsEmpty());
  EXPECT_EQ(next.partials[1].response_ids, partial.response_ids);
  EXPECT_EQ(next.partials[1].spans, partial.spans);
  EXPECT_TRUE(store().PutSample(next.token, 1, Continued(partial, 0)).ok());
}

TEST_P(TrajectoryStoreContract, PartialsSurviveAnExpiryOfTheNextLease) {
  PutPrompts(1);
  ASSERT_TRUE(store().ReturnLease(Lease(0, 1)[0].token, {0}, {ResponseAt(0, 2)}).ok());
  Lease(0, 1, "w1");
  PassLease();
  ASSERT_EQ(*store().Sweep(), 1);
  EXPECT_THAT(Lease(0, 1, "w2")[0].partials[0].response_ids, SizeIs(2));
}

TEST_P(TrajectoryStoreContract, ReturningNothingStartsANewAttempt) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {Response{}}).ok());
  EXPECT_EQ(Stats().outstanding, 0);
  EXPECT_EQ(Lease(0, 1)[0].attempt, lease.attempt + 1);
}

TEST_P(TrajectoryStoreContract, PartialsAreDiscardedWhenTheBoundIsZero) {
  options_.staleness.max = 0;
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().ReturnLease(lease.token, {0}, {ResponseAt(0, 2)}).ok());
  const GroupLease next = Lease(0, 1)[0];
  EXPECT_EQ(next.attempt, lease.attempt + 1);
  EXPECT_THAT(next.partials[0].response_ids, IsEmpty());
}

TEST_P(TrajectoryStoreContract, ReturnLeaseRefusesBadIndicesAndDeadLeases) {
  PutPrompts(1);
  const int64_t token = Lease(0, 1)[0].token;
  EXPECT_EQ(store().ReturnLease(token, {0}, {}).code(), kInvalid);
  EXPECT_EQ(store().ReturnLease(token, {2}, {Response{}}).code(), kInvalid);
  EXPECT_EQ(store().ReturnLease(token, {0, 0}, {Response{}, Response{}}).code(), kInvalid);
  EXPECT_EQ(store().ReturnLease(token, {0}, {ResponseAt(1)}).code(), kInvalid);
  EXPECT_EQ(Now(GroupState::kLeased), 1);
  ASSERT_TRUE(store().ReturnLease(token, {}, {}).ok());
  EXPECT_EQ(store().ReturnLease(token, {}, {}).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, PutSampleIsIdempotent) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0, 3)).ok());
  EXPECT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0, 5)).ok());
  ASSERT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());
  EXPECT_TRUE(store().PutSample(lease.token, 1, ResponseAt(0)).ok());  // the lease has ended
  EXPECT_EQ(Stats().samples_put, 2);
  EXPECT_EQ(Stats().duplicate_puts, 2);
  EXPECT_THAT(Rows(Task::kScore)[0].sample.response->response_ids, SizeIs(3));
}

TEST_P(TrajectoryStoreContract, AFormerLeaseIsNotToldThatAnothersSampleWasItsOwn) {
  PutPrompts(1);
  const int64_t former = Lease(0, 1)[0].token;
  ASSERT_TRUE(store().PutSample(former, 0, ResponseAt(0, 3)).ok());
  ASSERT_TRUE(store().ReturnLease(former, {}, {}).ok());
  const int64_t next = Lease(0, 1)[0].token;
  ASSERT_TRUE(store().PutSample(next, 1, ResponseAt(0, 4)).ok());
  EXPECT_EQ(store().PutSample(former, 1, ResponseAt(0, 5)).code(), kPrecondition);
  EXPECT_TRUE(store().PutSample(former, 0, ResponseAt(0, 3)).ok());
  EXPECT_EQ(Stats().fenced_puts, 1);
}

TEST_P(TrajectoryStoreContract, AnAcceptedSampleMayBeRepeatedAfterItsLeaseExpired) {
  PutPrompts(1);
  const GroupLease lease = Lease(0, 1)[0];
  ASSERT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
  PassLease();
  EXPECT_TRUE(store().PutSample(lease.token, 0, ResponseAt(0)).ok());
  EXPECT_EQ(store().PutSample(lease.token, 1, ResponseAt(0)).code(), kPrecondition);
}

TEST_P(TrajectoryStoreContract, AFencedWorkerCannotPutIntoTheNextLease) {
  PutPrompts(1);
  const GroupLease first = Lease(0, 1)[0];
  PassLease();
  const GroupLease second = Lease(0, 1, "w1")[0];
  EXPECT_EQ(store().PutSample(first.token, 0, ResponseAt(0)).code(), kPrecondition);
  EXPECT_TRUE(store().PutSample(second.token, 0, ResponseAt(0)).ok());
}

// A segment of two tokens for each version, the second of which was sampled.
inline Response Segmented(const std::vector<PolicyVersion>& versions) {
  Response response = ResponseAt(0, 2 * static_cast<int32_t>(versions.size()));
  response.spans.clear();
  for (int32_t begin = 0; const PolicyVersion& version : versions) {
    response.loss_mask[static_cast<size_t>(begin)] = 0;
    response.spans.push_back({version, begin, begin + 2});
    response.segments.push_back(begin);
    begin += 2;
  }
  return response;
}

// An agent may return to a conversation, so a later segment may be older than the one before.
TEST_P(TrajectoryStoreContract, SegmentsComeBackAndTheirVersionsCount) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(2);
  const std::vector<GroupLease> leases = Lease(0, 2);
  const Response sent = Segmented({{0, 1}, {0, 0}, {0, 1}});
  for (const GroupLease& lease : leases) {
    for (const int32_t index : lease.missing) {
      ASSERT_TRUE(store().PutSample(lease.token, index, sent).ok());
    }
  }
  ScoreAll();
  const NextBatchReply batch = NextBatch(2);
  ASSERT_TRUE(batch.ready) << batch.reason;
  const Response& got = *batch.groups[0].samples[0].sample.response;
  EXPECT_EQ(got.segments, sent.segments);
  EXPECT_EQ(got.spans, sent.spans);
  ASSERT_TRUE(store().CommitStep(epoch_, 2, Ordinals(batch), HashOf(2)).ok());
  const LedgerRow row = Ledger(LedgerEvent::kTrained).back();
  EXPECT_EQ(row.segments, sent.segments);
  EXPECT_EQ(row.loss_tokens, 3);
  EXPECT_EQ(row.min_version, 0);
  EXPECT_EQ(row.max_version, 1);
}

TEST_P(TrajectoryStoreContract, AnOldSegmentAnywhereIsFoundOut) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(1);
  const GroupLease lease = Lease(1, 1)[0];
  EXPECT_EQ(store().PutSample(lease.token, 0, Segmented({{0, 1}, {0, 0}, {0, 1}})).code(), kInvalid)
      << "the lease is of version 1";
  EXPECT_EQ(store().PutSample(lease.token, 0, Segmented({{0, 1}, {0, 2}, {0, 1}})).code(), kInvalid)
      << "version 2 is not committed";
}

TEST_P(TrajectoryStoreContract, PutSampleRefusesMalformedResponses) {
  OpenEpoch();
  Produce(2, 0);
  Train(1);
  PutPrompts(1);
  const int64_t token = Lease(1, 1)[0].token;
  struct Case {
    const char* name;
    std::function<void(Response&)> spoil;
  };
  const Case cases[] = {
      {"empty", [](Response& r) { r = Response{}; }},
      {"short log-probs", [](Response& r) { r.behavior_logprobs.pop_back(); }},
      {"long mask", [](Response& r) { r.loss_mask.push_back(1); }},
      {"mask of 2", [](Response& r) { r.loss_mask[0] = 2; }},
      {"no loss", [](Response& r) { r.loss_mask.assign(3, 0); }},
      {"negative id", [](Response& r) { r.response_ids[1] = -1; }},
      {"log-prob not finite", [](Response& r) { r.behavior_logprobs[1] = NAN; }},
      {"short sampling log-probs",
       [](Response& r) {
         r.sampling_logprobs = {-1, -1};
       }},
      {"long sampling log-probs",
       [](Response& r) {
         r.sampling_logprobs = {-1, -1, -1, -1};
       }},
      {"sampling log-prob not finite",
       [](Response& r) {
         r.sampling_logprobs = {-1, NAN, -1};
       }},
      {"no spans", [](Response& r) { r.spans.clear(); }},
      {"span too short", [](Response& r) { r.spans[0].end = 2; }},
      {"span too long", [](Response& r) { r.spans[0].end = 4; }},
      {"gap",
       [](Response& r) {
         r.spans = {{{0, 1}, 0, 1}, {{0, 1}, 2, 3}};
       }},
      {"empty span",
       [](Response& r) {
         r.spans = {{{0, 1}, 0, 0}, {{0, 1}, 0, 3}};
       }},
      {"not committed", [](Response& r) { r.spans[0].policy.version = 2; }},
      {"older than the lease", [](Response& r) { r.spans[0].policy.version = 0; }},
      {"decreasing",
       [](Response& r) {
         r.spans = {{{0, 1}, 0, 1}, {{0, 0}, 1, 3}};
       }},
      {"other lineage", [](Response& r) { r.spans[0].policy.lineage = 1; }},
      {"segments that begin late",
       [](Response& r) {
         r.loss_mask = {0, 1, 1};
         r.segments = {1};
       }},
      {"segments that do not increase",
       [](Response& r) {
         r.loss_mask = {0, 1, 1};
         r.segments = {0, 0};
       }},
      {"a segment behind the end",
       [](Response& r) {
         r.loss_mask = {0, 1, 1};
         r.segments = {0, 3};
       }},
      {"a segment without a context",
       [](Response& r) {
         r.loss_mask = {0, 1, 1};
         r.spans = {{{0, 1}, 0, 2}, {{0, 1}, 2, 3}};
         r.segments = {0, 2};
       }},
      {"a segment without loss",
       [](Response& r) {
         r.loss_mask = {0, 1, 0};
         r.spans = {{{0, 1}, 0, 2}, {{0, 1}, 2, 3}};
         r.segments = {0, 2};
       }},
      {"a span of two segments",
       [](Response& r) {
         r = Segmented({{0, 1}, {0, 1}});
         r.spans = {{{0, 1}, 0, 4}};
       }},
      {"too many segments",
       [](Response& r) {
         r = Segmented(std::vector<PolicyVersion>(kMaxSegments + 1, PolicyVersion{0, 1}));
       }},
  };
  for (const Case& c : cases) {
    Response response = ResponseAt(1);
    c.spoil(response);
    EXPECT_EQ(store().PutSample(token, 0, response).code(), kInvalid) << c.name;
  }
  EXPECT_EQ(store().PutSample(token, 2, ResponseAt(1)).code(), kInvalid);
  EXPECT_EQ(store().PutSample(token, -1, ResponseAt(1)).code(), kInvalid);
  EXPECT_TRUE(store().PutSample(token, 0, ResponseAt(1)).ok());
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_LEASE_CONTRACT_H_
