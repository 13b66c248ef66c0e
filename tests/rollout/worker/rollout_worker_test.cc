#include "rollout/worker/rollout_worker.h"

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/trace.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"
#include "tests/testing/log_lines.h"

namespace freshet {
namespace {

using RolloutWorkerTest = RolloutWorkerFixture;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST_F(RolloutWorkerTest, LeasesGeneratesAndDelivers) {
  PutPrompts(3);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(6); }).ok());
  EXPECT_EQ(Now(GroupState::kGenerated), 3);
  EXPECT_EQ(worker().counters().samples_finished, 6);
  EXPECT_EQ(worker().counters().tokens_generated, 6 * 4);
  EXPECT_EQ(engine_.submitted.size(), 3U);
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  const GenerationRequest& first = engine_.submitted[0];
  EXPECT_EQ(first.id, 0);
  EXPECT_EQ(first.ordinal, 0);
  EXPECT_EQ(first.seed, 77U);
  EXPECT_THAT(first.prompt_ids, ElementsAre(1, 0));
  EXPECT_THAT(first.sample_indices, ElementsAre(0, 1));
  EXPECT_EQ(first.sampling.max_new_tokens, 16);
  EXPECT_TRUE(first.partials.empty());
}

TEST_F(RolloutWorkerTest, AGroupHasTheSizeAndTheLimitOfItsLease) {
  StoreOptions options = store_->options();
  options.group_size = 3;
  options.adaptive = AdaptiveOptions{2, 1.0, 2.0};
  StoreOrigin origin;
  origin.policy = {0, 5};
  MakeStore(options, origin);
  PutPrompts(1);
  const GroupLease lease = LeaseAsAnother(1)[0];
  Response success;
  success.response_ids = {1, 2, 3};
  success.behavior_logprobs.assign(3, -0.5F);
  success.loss_mask.assign(3, 1);
  success.spans = {{{0, 5}, 0, 3}};
  Score score;
  score.reward = 1;
  for (const int32_t index : lease.missing) {
    const auto put =
        store_->PutSamples({{lease.token, index, std::make_shared<const Response>(success),
                             std::make_shared<const Score>(score)}});
    ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_TRUE(put->front().ok()) << put->front();
  }
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(5); }).ok());
  ASSERT_EQ(engine_.submitted.size(), 1U);
  EXPECT_THAT(engine_.submitted[0].sample_indices, ElementsAre(0, 1));
  EXPECT_EQ(engine_.submitted[0].sampling.max_new_tokens, 6) << "less than the job's 16";
}

TEST_F(RolloutWorkerTest, LogsTheLivesOfTheShareOfSamplesThatIsAskedFor) {
  const LogLines log;
  worker_options_.trace_ratio = 1;
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  for (const int32_t index : {0, 1}) {
    const std::string sample = TraceWords(SampleUid(store_->options().job, {0, 0, index}));
    EXPECT_THAT(log.With(sample),
                ElementsAre(testing::StartsWith("event=sample_leased " + sample + " token="),
                            "event=sample_stored " + sample + " tokens=4 version=5 spans=1"));
  }
}

TEST_F(RolloutWorkerTest, LogsNoLifeUnlessItIsAskedTo) {
  const LogLines log;
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_THAT(log.With("trace="), IsEmpty());
}

TEST_F(RolloutWorkerTest, DeliversEachSampleAsSoonAsItIsFinished) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 2U : 9U; };
  int polls_at_first = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (polls_at_first == 0 && AllPut(1)) polls_at_first = engine_.polls;
                return AllPut(2);
              }).ok());
  EXPECT_EQ(polls_at_first, 2);
  EXPECT_EQ(engine_.polls, 9);
}

TEST_F(RolloutWorkerTest, ASampleThatCompletesItsGroupGoesAtOnceWithAllThatWait) {
  worker_options_.put_period = absl::Hours(1);
  PutPrompts(2);
  Publish(5);
  // Samples of group 0 finish in polls 2 and 5, those of group 1 in polls 3 and 9.
  engine_.length = [](int64_t group, int32_t sample) {
    return std::vector<size_t>{2, 5, 3, 9}[static_cast<size_t>(2 * group + sample)];
  };
  std::map<int, int64_t> put_by_poll;
  ASSERT_TRUE(RunUntil([&] {
                put_by_poll.try_emplace(engine_.polls, Stats().samples_put);
                return AllPut(4);
              }).ok());
  EXPECT_EQ(put_by_poll[4], 0);
  EXPECT_EQ(put_by_poll[5], 3);
  EXPECT_EQ(put_by_poll[8], 3);
  EXPECT_EQ(put_by_poll[9], 4);
  EXPECT_EQ(store_->put_calls, 2);
}

TEST_F(RolloutWorkerTest, ASampleOfAGroupThatGoesOnWaitsNoLongerThanItsPeriod) {
  worker_options_.put_period = absl::Milliseconds(100);
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 2U : 9U; };
  std::map<int, int64_t> put_by_poll;
  ASSERT_TRUE(RunUntil([&] {
                if (put_by_poll.try_emplace(engine_.polls, Stats().samples_put).second) {
                  clock_.Advance(absl::Milliseconds(25));
                }
                return AllPut(2);
              }).ok());
  EXPECT_EQ(put_by_poll[5], 0);
  EXPECT_EQ(put_by_poll[7], 1);
  EXPECT_EQ(store_->put_calls, 2);
}

TEST_F(RolloutWorkerTest, AnEngineWithoutWorkPutsWhatIsFinished) {
  worker_options_.put_period = absl::Hours(1);
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 2U : 9U; };
  bool cancelled = false;
  ASSERT_TRUE(RunUntil([&] {
                if (engine_.polls == 4 && !cancelled) {
                  cancelled = true;
                  engine_.Cancel(0);
                }
                return AllPut(1);
              }).ok());
  EXPECT_EQ(store_->put_calls, 1);
}

TEST_F(RolloutWorkerTest, AWorkerThatStopsPutsWhatIsFinished) {
  worker_options_.put_period = absl::Hours(1);
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 2U : 9U; };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 4; }).ok());
  EXPECT_TRUE(AllPut(1));
}

TEST_F(RolloutWorkerTest, LeasesNothingBeforeTheFirstWeights) {
  PutPrompts(3);
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return ++turns == 20; }).ok());
  EXPECT_EQ(store_->lease_calls, 0);
  EXPECT_EQ(engine_.polls, 0);
  EXPECT_GE(store_->waits, 19);
  EXPECT_EQ(store_->waits_without_effect, 0) << "the worker spins instead of waiting";
}

TEST_F(RolloutWorkerTest, WaitsWhileTheGateIsClosed) {
  PutPrompts(10);  // the gate admits (eta + 1) * B = 4
  Publish(5);
  int turns_after = 0;
  ASSERT_TRUE(RunUntil([&] { return AllPut(8) && ++turns_after == 20; }).ok());
  EXPECT_EQ(engine_.submitted.size(), 4U);
  // At most one lease call with leases and one per change after it: 8 samples and their groups.
  EXPECT_LE(store_->lease_calls, 10);
  EXPECT_LE(store_->waits_without_effect, 8);
  EXPECT_THAT(worker().counters().last_wait_reason, Not(IsEmpty()));
}

TEST_F(RolloutWorkerTest, AGroupThatFitsIntoNoEngineIsTriedForTheReason) {
  PutPrompts(1);
  Publish(5);
  engine_.capacity = 1;  // a group has two samples
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return ++turns == 20; }).ok());
  EXPECT_GT(store_->lease_calls, 0);
}

TEST_F(RolloutWorkerTest, NewPromptsOpenTheGateAgain) {
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] {
                if (AllPut(2) && next_ordinal_ == 1) PutPrompts(1);
                return AllPut(4);
              }).ok());
  EXPECT_EQ(Now(GroupState::kGenerated), 2);
}

TEST_F(RolloutWorkerTest, TakesOnlyWhatTheEngineHasRoomFor) {
  PutPrompts(4);
  Publish(5);
  engine_.capacity = 5;
  int64_t most = 0;
  engine_.on_poll = [&] { most = std::max(most, engine_.Running()); };
  ASSERT_TRUE(RunUntil([&] { return AllPut(8); }).ok());
  EXPECT_EQ(most, 4);
}

TEST_F(RolloutWorkerTest, LeasesNoMoreThanItsShareInOneTurn) {
  PutPrompts(4);
  Publish(5);
  worker().SetLeaseShare(3);
  ASSERT_TRUE(RunUntil([&] { return AllPut(8); }).ok());
  ASSERT_GE(store_->lease_calls, 2);
  EXPECT_EQ(store_->requests[0].max_groups, 3);
  EXPECT_EQ(store_->requests[1].max_groups, 3);
}

TEST_F(RolloutWorkerTest, SwapsWeightsBetweenTwoTokens) {
  PutPrompts(1);
  Publish(4);
  engine_.on_poll = [&] {
    if (engine_.polls == 3) Publish(5);
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_THAT(engine_.loaded[0], ElementsAre(PolicyVersion{0, 4}, PolicyVersion{0, 5}));
  EXPECT_EQ(worker().counters().weight_swaps, 2);
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].sample.response->spans, (std::vector<Span>{{{0, 4}, 0, 3}, {{0, 5}, 3, 4}}));
}

TEST_F(RolloutWorkerTest, ANewerVersionOpensTheGate) {
  PutPrompts(10);
  Publish(4);  // v_e = V - 1: (1 + 1 - 1) * 2 = 2 groups
  ASSERT_TRUE(RunUntil([&] {
                if (AllPut(4) && engine_.loaded[0].size() == 1) Publish(5);
                return AllPut(8);
              }).ok());
  EXPECT_EQ(engine_.submitted.size(), 4U);
}

TEST_F(RolloutWorkerTest, AnEngineOfAReplacedLineageWaitsForTheNewWeights) {
  PutPrompts(2);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  for (const RowLease& row : *rows) {
    auto score = std::make_shared<Score>();
    ASSERT_TRUE(store_->PutFields(Task::kScore, row.token, {score}).ok());
  }
  const int64_t first = store_->OpenEpoch("t", {0, 5})->epoch;
  ASSERT_TRUE(store_->NextBatch(first, 6)->ready);
  ASSERT_TRUE(store_->CommitStep(first, 6, {0, 1}, "weights").ok());
  const int64_t second = store_->OpenEpoch("t", {0, 5})->epoch;
  ASSERT_TRUE(store_->CommitStep(second, 6, {0, 1}, "other weights").ok());
  PutPrompts(1);
  Publish(6);
  bool waited = false;
  ASSERT_TRUE(RunUntil([&] {
                if (!waited && engine_.loaded[0].size() == 2) {
                  waited =
                      worker().counters().last_wait_reason.find("lineage") != std::string::npos;
                  if (waited) PublishAt({1, 6});
                }
                return AllPut(6);
              }).ok());
  EXPECT_TRUE(waited);
  EXPECT_THAT(store_->requests.back().engine, (PolicyVersion{1, 6}));
}

// The clock stands still, so the worker's own thread renews nothing.
TEST_F(RolloutWorkerTest, LeasesAreRenewedDuringALongCallOfTheEngine) {
  worker_options_.lease_ttl = absl::Milliseconds(60);
  worker_options_.longest_call = absl::Minutes(2);
  struct Renewals {
    std::atomic<bool> loading{false};
    Notification in_poll;
    Notification in_load;
  };
  const auto renewals = std::make_shared<Renewals>();
  store_->on_renew = [renewals] {
    (renewals->loading ? renewals->in_load : renewals->in_poll).Notify();
  };
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 100U; };
  engine_.on_poll = [&] {
    if (engine_.polls != 2) return;
    EXPECT_TRUE(renewals->in_poll.WaitFor(absl::Minutes(1)));
    renewals->loading = true;
    Publish(6);
  };
  engine_.on_load = [&] {
    if (renewals->loading) {
      EXPECT_TRUE(renewals->in_load.WaitFor(absl::Minutes(1)));
    }
  };
  ASSERT_TRUE(RunUntil([&] { return engine_.loaded[0].size() == 2; }).ok());
}

TEST_F(RolloutWorkerTest, RenewsItsLeasesWhileItWorks) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 12U; };
  engine_.on_poll = [&] { clock_.Advance(kTtl / 2); };
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
  EXPECT_EQ(Stats().leases_expired, 0);
  EXPECT_EQ(worker().counters().leases_cancelled, 0);
}

TEST_F(RolloutWorkerTest, StopsWorkingForALostLease) {
  PutPrompts(2);
  Publish(5);
  engine_.on_poll = [&] {
    if (engine_.polls == 2) clock_.Advance(kTtl + absl::Seconds(1));
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
  EXPECT_EQ(worker().counters().leases_cancelled, 2);
  EXPECT_THAT(engine_.cancelled, ElementsAre(0, 1));
  // The groups were leased again and generated from the start.
  EXPECT_EQ(engine_.submitted.size(), 4U);
  EXPECT_EQ(Stats().leases_expired, 2);
  EXPECT_EQ(Stats().fenced_puts, 0);
}

TEST_F(RolloutWorkerTest, ASampleOfALostLeaseIsRefusedAndItsGroupGivenUp) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 3U : 8U; };
  engine_.on_poll = [&] {
    // The lease expires after the token that finishes sample 0, before the sample is put.
    if (engine_.polls == 3) clock_.Advance(kTtl + absl::Seconds(1));
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_EQ(worker().counters().samples_fenced, 1);
  EXPECT_EQ(worker().counters().samples_finished, 2);
  EXPECT_THAT(engine_.cancelled, Contains(0));
  EXPECT_EQ(Stats().fenced_puts, 1);
}

TEST_F(RolloutWorkerTest, HandsBackPartialsWhenItStops) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t request, int32_t sample) {
    return request == 0 && sample == 0 ? 2U : 9U;
  };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 2; }).ok());
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_EQ(Now(GroupState::kRequeued), 2);
  const std::vector<GroupLease> leases = LeaseAsAnother(2);
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_THAT(leases[0].missing, ElementsAre(1));
  ASSERT_EQ(leases[0].partials.size(), 1U);
  EXPECT_THAT(leases[0].partials[0].response_ids, ElementsAre(10, 11, 12));
  EXPECT_THAT(leases[1].missing, ElementsAre(0, 1));
  EXPECT_EQ(leases[1].partials[1].response_ids.size(), 3U);
}

TEST_F(RolloutWorkerTest, ContinuesThePartialsOfAnother) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 9U; };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 2; }).ok());
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  ASSERT_EQ(engine_.submitted.size(), 2U);
  ASSERT_EQ(engine_.submitted[1].partials.size(), 2U);
  EXPECT_THAT(engine_.submitted[1].partials[0].response_ids, ElementsAre(10, 11, 12));
  EXPECT_EQ(engine_.polls, 9);
}

TEST_F(RolloutWorkerTest, ReturnsALeaseThatTheEngineHasNoRoomFor) {
  PutPrompts(2);
  Publish(5);
  engine_.refuse_submits = 1;
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
  EXPECT_EQ(engine_.submitted.size(), 2U);
  EXPECT_EQ(Now(GroupState::kGenerated), 2);
}

TEST_F(RolloutWorkerTest, TokensAreCountedBeforeTheirSamplesAreStored) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t sample) { return sample == 0 ? 2U : 5U; };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_THAT(store_->counted_at_puts, ElementsAre(2 * 2, 2 + 5));
  EXPECT_EQ(Stats().generation, (GenerationTotals{7, {}, {}}));
  EXPECT_EQ(store_->counts.size(), 2U) << "one call per put";
}

TEST_F(RolloutWorkerTest, WhatFinishesNothingIsCountedOncePerPeriod) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 9U; };
  engine_.on_poll = [&] { clock_.Advance(absl::Milliseconds(250)); };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_THAT(store_->counts,
              ElementsAre(GenerationTotals{4 * 2, {}, {}}, GenerationTotals{4 * 2, {}, {}},
                          GenerationTotals{1 * 2, {}, {}}));
}

TEST_F(RolloutWorkerTest, IdleAndSwapTimesAreCounted) {
  Publish(5);
  engine_.on_load = [&] { clock_.Advance(absl::Milliseconds(1500)); };
  store_->on_wait = [&] { clock_.Advance(absl::Milliseconds(400)); };
  ASSERT_TRUE(RunUntil([&] { return store_->waits == 10; }).ok());
  const int waits = store_->waits;
  EXPECT_EQ(Stats().generation,
            (GenerationTotals{0, waits * absl::Milliseconds(400), absl::Milliseconds(1500)}));
  EXPECT_THAT(store_->counts.size(), testing::AllOf(testing::Ge(4U), testing::Le(6U)))
      << "once per second, and at the end";
}

TEST_F(RolloutWorkerTest, AWorkerThatStopsCountsTheRest) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 9U; };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 4; }).ok());
  EXPECT_EQ(engine_.polls, 5);
  EXPECT_EQ(Stats().generation.tokens, 5 * 2);
}

TEST_F(RolloutWorkerTest, AStoreFailureEndsIt) {
  PutPrompts(1);
  Publish(5);
  store_->lease_status = absl::InternalError("the store burns");
  EXPECT_EQ(RunUntil([] { return false; }).code(), absl::StatusCode::kInternal);
}

TEST_F(RolloutWorkerTest, AStoreThatDoesNotCountEndsIt) {
  PutPrompts(1);
  Publish(5);
  store_->count_status = absl::NotFoundError("the store was deleted");
  EXPECT_EQ(RunUntil([] { return false; }).code(), absl::StatusCode::kNotFound);
}

TEST_F(RolloutWorkerTest, WeightsThatTheEngineRefusesEndIt) {
  Publish(5);
  engine_.load_status[0] = absl::InvalidArgumentError("another model");
  EXPECT_EQ(RunUntil([] { return false; }).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
