// A worker whose store is unreachable, whose name is revoked, or which is paused.

#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using RolloutWorkerOutageTest = RolloutWorkerFixture;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(RolloutWorkerOutageTest, LeasesAgainAfterAnOutage) {
  PutPrompts(2);
  Publish(5);
  store_->lease_status = absl::UnavailableError("down");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (++turns == 20) store_->lease_status = absl::OkStatus();
                clock_.Advance(absl::Milliseconds(10));
                return AllPut(4);
              }).ok());
  // In the 200 ms outage it tries at 0, 50 and 150 ms.
  EXPECT_LE(store_->lease_calls, 8);
  EXPECT_EQ(worker().counters().store_outages, 1);
}

TEST_F(RolloutWorkerOutageTest, ALeaseCallWhoseAnswerWasLostIsRepeatedUnderItsId) {
  PutPrompts(2);
  Publish(5);
  store_->lease_status = absl::UnavailableError("down");
  ASSERT_TRUE(RunUntil([&] {
                if (store_->lease_calls == 3) store_->lease_status = absl::OkStatus();
                clock_.Advance(absl::Seconds(1));
                return AllPut(4);
              }).ok());
  ASSERT_GE(store_->requests.size(), 4U);
  EXPECT_EQ(store_->requests[0].request_id, store_->requests[3].request_id);
  EXPECT_EQ(store_->requests[0].request_id, "job/rollout/1/0");
}

TEST_F(RolloutWorkerOutageTest, FinishedSamplesAreKeptAndSentLater) {
  PutPrompts(3);
  Publish(5);
  store_->put_status = absl::UnavailableError("down");
  int64_t most_unsent = 0;
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                most_unsent = std::max(most_unsent, worker().counters().unsent_samples);
                if (++turns == 30) store_->put_status = absl::OkStatus();
                clock_.Advance(absl::Milliseconds(20));
                return AllPut(6);
              }).ok());
  EXPECT_EQ(most_unsent, 6);
  EXPECT_EQ(worker().counters().unsent_samples, 0);
  EXPECT_EQ(worker().counters().samples_finished, 6);
  EXPECT_EQ(engine_.submitted.size(), 3U) << "nothing was generated twice";
  EXPECT_EQ(Now(GroupState::kGenerated), 3);
}

TEST_F(RolloutWorkerOutageTest, RepeatsASampleUntilItsLeaseIsRefused) {
  PutPrompts(1);
  Publish(5);
  store_->put_status = absl::UnavailableError("down");
  store_->renew_status = absl::UnavailableError("down");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (++turns == 10) {
                  clock_.Advance(kTtl + absl::Seconds(1));
                  store_->put_status = absl::OkStatus();
                  store_->renew_status = absl::OkStatus();
                }
                return AllPut(2);
              }).ok());
  EXPECT_EQ(worker().counters().samples_fenced, 2);
  EXPECT_EQ(engine_.submitted.size(), 2U);
}

TEST_F(RolloutWorkerOutageTest, StopsGeneratingWhenItKeepsAsManyAsItMay) {
  PutPrompts(4);
  Publish(5);
  worker_options_.max_unsent_samples = 2;
  engine_.length = [](int64_t request, int32_t) { return request == 0 ? 2U : 9U; };
  store_->put_status = absl::UnavailableError("down");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return ++turns == 100; }).ok());
  EXPECT_EQ(engine_.polls, 2);
}

TEST_F(RolloutWorkerOutageTest, AFullStoreIsWaitedFor) {
  PutPrompts(1);
  Publish(5);
  store_->put_status = absl::ResourceExhaustedError("OOM");
  ASSERT_TRUE(RunUntil([&] {
                if (store_->put_calls == 3) store_->put_status = absl::OkStatus();
                clock_.Advance(absl::Seconds(1));
                return AllPut(2);
              }).ok());
  EXPECT_EQ(worker().counters().store_outages, 1) << "though it counts tokens";
}

TEST_F(RolloutWorkerOutageTest, WhatCouldNotBeCountedIsCountedLater) {
  PutPrompts(3);
  Publish(5);
  store_->count_status = absl::UnavailableError("down");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (++turns == 30) store_->count_status = absl::OkStatus();
                clock_.Advance(absl::Milliseconds(20));
                return AllPut(6);
              }).ok());
  EXPECT_EQ(Stats().generation.tokens, 6 * 4);
  EXPECT_THAT(store_->counted_at_puts, testing::Each(24));
  EXPECT_LE(store_->counts.size(), 8U) << "0, 50, 150, 350, 750 ms, and the rest";
  EXPECT_EQ(worker().counters().store_outages, 1);
}

TEST_F(RolloutWorkerOutageTest, AnOutageOfCountingAtTheEndIsNoFailure) {
  PutPrompts(1);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 9U; };
  store_->count_status = absl::UnavailableError("down");
  EXPECT_TRUE(RunUntil([&] { return engine_.polls == 4; }).ok());
  EXPECT_EQ(Stats().generation.tokens, 0);
}

TEST_F(RolloutWorkerOutageTest, AGroupWhoseTokensTheStoreRefusesIsMadeAnew) {
  PutPrompts(1);
  Publish(5);
  store_->sample_status = absl::InvalidArgumentError("spans: lineage 0 is not the committed 1");
  ASSERT_TRUE(RunUntil([&] {
                if (store_->put_calls == 2) store_->sample_status = absl::OkStatus();
                return AllPut(2);
              }).ok());
  EXPECT_EQ(worker().counters().samples_refused, 4);
  EXPECT_EQ(store_->fail_calls, 2);
  EXPECT_EQ(worker().counters().samples_finished, 2);
}

TEST_F(RolloutWorkerOutageTest, AGroupWhoseTokensTheStoreAlwaysRefusesDies) {
  PutPrompts(1);
  Publish(5);
  store_->sample_status = absl::InvalidArgumentError("behavior_logprobs: not finite");
  ASSERT_TRUE(RunUntil([&] { return Now(GroupState::kDead) == 1; }).ok());
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_EQ(store_->DeadLetters(1)->at(0).reason,
            "lease_failed: 5 times: behavior_logprobs: not finite");
}

TEST_F(RolloutWorkerOutageTest, AStoreThatRefusesAllSamplesEndsIt) {
  PutPrompts(4);
  Publish(5);
  store_->sample_status = absl::InvalidArgumentError("loss_mask: wrong");
  EXPECT_EQ(RunUntil([] { return false; }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker().counters().samples_refused, 15);
}

TEST_F(RolloutWorkerOutageTest, WhatFinishesInOnePollGoesToTheStoreInOneCall) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t request, int32_t) { return request == 0 ? 2U : 9U; };
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
  EXPECT_EQ(store_->put_calls, 2);
}

TEST_F(RolloutWorkerOutageTest, TriesOnceMoreWhenItStops) {
  PutPrompts(1);
  Publish(5);
  store_->put_status = absl::UnavailableError("down");
  ASSERT_TRUE(RunUntil([&] {
                if (worker().counters().unsent_samples < 2) return false;
                store_->put_status = absl::OkStatus();
                return true;
              }).ok());
  EXPECT_TRUE(AllPut(2));
}

TEST_F(RolloutWorkerOutageTest, AnOutageAtTheEndIsNoEndlessWait) {
  PutPrompts(2);
  Publish(5);
  store_->put_status = absl::UnavailableError("down");
  ASSERT_TRUE(RunUntil([&] { return worker().counters().unsent_samples == 4; }).ok());
  EXPECT_EQ(engine_.Running(), 0);
}

TEST_F(RolloutWorkerOutageTest, PausedItFinishesWhatItHasAndLeasesNothing) {
  PutPrompts(1);
  Publish(5);
  engine_.on_poll = [&] {
    if (engine_.polls == 1) {
      worker().SetPaused(true);
      PutPrompts(1);
    }
  };
  int turns_after = 0;
  ASSERT_TRUE(RunUntil([&] { return AllPut(2) && ++turns_after == 20; }).ok());
  EXPECT_EQ(engine_.submitted.size(), 1U);
  worker().SetPaused(false);
  ASSERT_TRUE(RunUntil([&] { return AllPut(4); }).ok());
}

TEST_F(RolloutWorkerOutageTest, ANewNameDropsTheFormerOnesLeases) {
  PutPrompts(1);
  Publish(5);
  engine_.on_poll = [&] {
    if (engine_.polls == 2) worker().Rename("rollout-0#2");
  };
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (++turns == 10) {
                  clock_.Advance(kTtl + absl::Seconds(1));
                  EXPECT_TRUE(store_->Sweep().ok());
                }
                return AllPut(2);
              }).ok());
  EXPECT_EQ(store_->return_calls, 0);
  EXPECT_EQ(store_->requests.front().worker, "rollout-0");
  EXPECT_EQ(store_->requests.back().worker, "rollout-0#2");
  EXPECT_EQ(worker().counters().leases_cancelled, 1);
  EXPECT_THAT(engine_.cancelled, ElementsAre(0));
  EXPECT_EQ(engine_.submitted.size(), 2U);
}

TEST_F(RolloutWorkerOutageTest, ANameThatTheStoreRefusesWaitsForAnother) {
  PutPrompts(1);
  Publish(5);
  store_->lease_status = absl::FailedPreconditionError("rollout-0#1 is revoked");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return ++turns == 20; }).ok());
  EXPECT_EQ(store_->lease_calls, 1);
  EXPECT_EQ(worker().counters().fenced_name, "rollout-0");
  store_->lease_status = absl::OkStatus();
  worker().Rename("rollout-0#2");
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_EQ(worker().counters().fenced_name, "");
}

TEST_F(RolloutWorkerOutageTest, ARefusedRenewalDropsAllLeases) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 30U; };
  store_->renew_status = absl::FailedPreconditionError("revoked");
  engine_.on_poll = [&] {
    if (engine_.polls != 2) return;
    clock_.Advance(kTtl / 2);
    store_->lease_status = absl::FailedPreconditionError("revoked");
  };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls >= 2 && engine_.Running() == 0; }).ok());
  EXPECT_EQ(worker().counters().leases_cancelled, 2);
  EXPECT_EQ(store_->return_calls, 0);
}

}  // namespace
}  // namespace freshet
