// A worker whose samples are episodes with an environment.

#include <optional>

#include "tests/rollout/worker/fake_environment_client.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Call = FakeEnvironmentClient::Call;

// The environment answers the first turn with "a" and ends after the second with reward 0.5.
class RolloutWorkerEpisodeTest : public RolloutWorkerFixture {
 protected:
  RolloutWorkerEpisodeTest() {
    EpisodeOptions options;
    options.environment = "game";
    options.max_turn_tokens = 2;
    options.retry_delay = absl::Milliseconds(1);
    episodes_ = std::make_unique<EpisodeRunner>(
        engine_, client_, clock_, EpisodeText{DecodeBytes, EncodeBytes}, std::move(options));
    engine_.length = [this](int64_t request, int32_t) {
      return static_cast<size_t>(
          engine_.submitted.at(static_cast<size_t>(request - 1)).sampling.max_new_tokens);
    };
    client_.answer = [](const Call& call) { return Play(call); };
  }

  static EpisodeAnswer Play(const Call& call) {
    if (call.turn == 0) return {};
    return call.turn == 1 ? EpisodeAnswer{"a", 0, false, false}
                          : EpisodeAnswer{"", 0.5, true, false};
  }

  FakeEnvironmentClient client_;
};

TEST_F(RolloutWorkerEpisodeTest, PutsWholeTrajectories) {
  PutPrompts(3);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return AllPut(6); }).ok());
  EXPECT_EQ(Now(GroupState::kGenerated), 3);
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  ASSERT_THAT(*rows, SizeIs(6));
  for (const RowLease& row : *rows) {
    const Response& response = *row.sample.response;
    EXPECT_THAT(response.response_ids, ElementsAre(10, 11, 'a', 13, 14));
    EXPECT_THAT(response.loss_mask, ElementsAre(1, 1, 0, 1, 1));
    EXPECT_EQ(response.env_reward, 0.5);
    EXPECT_EQ(response.finish, FinishReason::kStop);
  }
  EXPECT_EQ(engine_.submitted.size(), 6U);  // two turns per group
  const RolloutCounters counters = worker().counters();
  EXPECT_EQ(counters.samples_finished, 6);
  EXPECT_EQ(counters.episodes.terminated, 6);
  EXPECT_EQ(counters.tokens_generated, 6 * 4);
}

TEST_F(RolloutWorkerEpisodeTest, GoesOnWithOthersWhileAnEnvironmentThinks) {
  PutPrompts(2);
  Publish(5);
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] {
                // Answers arrive at every 11th poll only. The worker waits for them, not for the
                // store.
                client_.held = ++turns % 11 != 0;
                return AllPut(4);
              }).ok());
  EXPECT_GT(client_.waits, 0);
  EXPECT_EQ(Now(GroupState::kGenerated), 2);
}

TEST_F(RolloutWorkerEpisodeTest, AGroupWhoseEnvironmentFailsIsHandedBackWithoutAReward) {
  PutPrompts(1);
  Publish(5);
  std::optional<int64_t> broken;
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    if (!broken.has_value()) return absl::UnavailableError("gone");
    return Play(call);
  };
  ASSERT_TRUE(RunUntil([&] {
                if (worker().counters().groups_handed_back > 0) broken = 0;
                clock_.Advance(absl::Milliseconds(100));
                return AllPut(2);
              }).ok());
  EXPECT_EQ(worker().counters().groups_handed_back, 1);
  EXPECT_EQ(store_->hand_back_calls, 1);
  // Both samples were tried up to three times before the group was handed back and leased again.
  EXPECT_GE(client_.starts.size(), 3U + 2U);
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ((*rows)[0].sample.response->env_reward, 0.5);
}

TEST_F(RolloutWorkerEpisodeTest, AGroupWhoseEnvironmentAlwaysRaisesDiesAndOthersGoOn) {
  PutPrompts(2);
  Publish(5);
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    // Episodes of a group share their seed; episode ids are the start numbers.
    const uint64_t seed = client_.starts.at(static_cast<size_t>(call.episode - 1)).seed;
    const bool of_first_group = seed == client_.starts.front().seed;
    if (of_first_group && call.turn == 1) return absl::InternalError("KeyError: 'answer'");
    return Play(call);
  };
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(100));
                return Now(GroupState::kDead) == 1 && AllPut(2);
              }).ok());
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_EQ(store_->hand_back_calls, 0);
  const std::vector<DeadLetter> dead = *store_->DeadLetters(10);
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_THAT(dead[0].reason, testing::StartsWith("lease_failed: 5 times: environment game"));
  EXPECT_THAT(dead[0].reason, testing::HasSubstr("KeyError"));
}

TEST_F(RolloutWorkerEpisodeTest, AGroupThatHangsAnEnvironmentThatAnswersDies) {
  PutPrompts(1);  // one group, so no other answers show that the environment works
  Publish(5);
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    if (call.turn == 0) return EpisodeAnswer{};
    return absl::DeadlineExceededError("no answer in 5s");
  };
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(500));
                return Now(GroupState::kDead) == 1;
              }).ok());
  EXPECT_EQ(store_->fail_calls, 5);
}

TEST_F(RolloutWorkerEpisodeTest, AnEnvironmentThatIsAwayKillsNoGroup) {
  PutPrompts(1);
  Publish(5);
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    if (store_->hand_back_calls < 12) return absl::UnavailableError("gone");
    return Play(call);
  };
  std::string reason;
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(500));
                if (store_->hand_back_calls == 7) reason = WaitReason(worker().counters());
                return AllPut(2);
              }).ok());
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_THAT(reason, testing::StartsWith("7 leases in a row were handed back, the last: "));
  EXPECT_THAT(reason, testing::HasSubstr("gone; a group is given up after 16 "
                                         "(rollout.max_hand_backs), counted at most once per 30s"));
  EXPECT_EQ(worker().counters().handed_back, "") << "the environment answers";
}

TEST_F(RolloutWorkerEpisodeTest, WhatItWaitsForIsNotAnOldHandBack) {
  PutPrompts(1);
  Publish(5);
  client_.answer = [](const Call&) { return absl::UnavailableError("gone"); };
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(kTtl);
                return Now(GroupState::kDead) == 1 && worker().counters().handed_back.empty();
              }).ok());
  EXPECT_THAT(WaitReason(worker().counters()), testing::Not(testing::HasSubstr("handed back")));
}

TEST_F(RolloutWorkerEpisodeTest, AWorkerThatIsRefusedDoesNotWaitForItsEnvironment) {
  PutPrompts(1);
  Publish(5);
  client_.answer = [](const Call&) { return absl::UnavailableError("gone"); };
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(500));
                if (store_->hand_back_calls == 2) {
                  store_->lease_status = absl::FailedPreconditionError("w was revoked");
                }
                return !worker().counters().fenced_name.empty();
              }).ok());
  EXPECT_EQ(WaitReason(worker().counters()), "w was revoked");
}

TEST_F(RolloutWorkerEpisodeTest, APromptThatItsEnvironmentRefusesIsGivenUpAndOthersGoOn) {
  PutPrompts(2);
  Publish(5);
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    const uint64_t seed = client_.starts.at(static_cast<size_t>(call.episode - 1)).seed;
    if (seed == client_.starts.front().seed) return absl::InvalidArgumentError("no such level");
    return Play(call);
  };
  ASSERT_TRUE(RunUntil([&] { return Now(GroupState::kDead) == 1 && AllPut(2); }).ok())
      << "without a pause: the clock stands still";
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_THAT((*store_->DeadLetters(1))[0].reason, testing::HasSubstr("no such level"));
}

TEST_F(RolloutWorkerEpisodeTest, APromptWhoseFirstObservationIsTooLongIsGivenUpAndOthersGoOn) {
  PutPrompts(2);
  Publish(5);
  client_.answer = [&](const Call& call) -> FakeEnvironmentClient::Answer {
    const uint64_t seed = client_.starts.at(static_cast<size_t>(call.episode - 1)).seed;
    const bool first = seed == client_.starts.front().seed;
    if (call.turn == 0 && first) return EpisodeAnswer{std::string(16, 'x'), 0, false, false};
    return Play(call);
  };
  ASSERT_TRUE(RunUntil([&] { return Now(GroupState::kDead) == 1 && AllPut(2); }).ok());
  EXPECT_THAT((*store_->DeadLetters(1))[0].reason,
              testing::HasSubstr("the observation of a reset has 16 tokens"));
}

TEST_F(RolloutWorkerEpisodeTest, AnEngineThatFailsToTakeTurnsCostsNoPrompt) {
  PutPrompts(10);
  Publish(5);
  worker_options_.most_engine_failures = 5;
  engine_.fail_submit = [](const GenerationRequest&) {
    return absl::InternalError("the engine failed: std::bad_alloc");
  };
  const absl::Status status = RunUntil([&] {
    clock_.Advance(absl::Milliseconds(100));
    return false;
  });
  EXPECT_EQ(status.message(), "the engine failed: std::bad_alloc") << "a new engine is made";
  EXPECT_EQ(worker().counters().engine_failures, 5);
  EXPECT_EQ(worker().counters().groups_handed_back, 0);
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_EQ(client_.open(), 0U);
  EXPECT_THAT(LeaseAsAnother(10), testing::Not(testing::IsEmpty()));
}

TEST_F(RolloutWorkerEpisodeTest, AnEvaluationOutlivesAnEngineThatFailsToTakeATurn) {
  Publish(5);
  int failures = 0;
  engine_.fail_submit = [&](const GenerationRequest&) {
    return ++failures < 3 ? absl::InternalError("out of memory") : absl::OkStatus();
  };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(3)));
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(100));
                return Evaluated();
              }).ok());
  ASSERT_THAT(answers_, SizeIs(3)) << abandoned_;
  for (const EvaluationAnswer& answer : answers_) EXPECT_NE(answer.response, nullptr);
  EXPECT_EQ(worker().counters().engine_failures, 2);
}

TEST_F(RolloutWorkerEpisodeTest, HandsBackNoHalfEpisodes) {
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 1; }).ok());
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_EQ(client_.open(), 0U);
  const std::vector<GroupLease> leases = LeaseAsAnother(1);
  ASSERT_THAT(leases, SizeIs(1));
  EXPECT_THAT(leases[0].missing, ElementsAre(0, 1));
  EXPECT_TRUE(leases[0].partials[0].response_ids.empty());
}

TEST_F(RolloutWorkerEpisodeTest, ALostLeaseEndsItsEpisodes) {
  PutPrompts(1);
  Publish(5);
  engine_.on_poll = [&] {
    if (engine_.polls == 1) clock_.Advance(kTtl + absl::Seconds(1));
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_EQ(worker().counters().leases_cancelled, 1);
  EXPECT_EQ(client_.starts.size(), 4U);
  EXPECT_EQ(client_.open(), 0U);
}

TEST_F(RolloutWorkerEpisodeTest, OpensNoMoreEpisodesThanTheEngineCanUse) {
  PutPrompts(4);
  Publish(5);
  engine_.capacity = 2;
  int64_t most = 0;
  client_.answer = [&](const Call& call) {
    most = std::max(most, episodes_->open());
    return Play(call);
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(8); }).ok());
  EXPECT_LE(most, 4);
}

TEST_F(RolloutWorkerEpisodeTest, EvaluatesByEpisodesToo) {
  PutPrompts(1);
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(3)));
  ASSERT_TRUE(RunUntil([&] { return Evaluated() && AllPut(2); }).ok());
  ASSERT_THAT(answers_, SizeIs(3)) << abandoned_;
  for (const EvaluationAnswer& answer : answers_) {
    ASSERT_NE(answer.response, nullptr) << answer.error;
    EXPECT_THAT(answer.response->response_ids, ElementsAre(10, 11, 'a', 13, 14));
    EXPECT_EQ(answer.response->spans.front().policy, (PolicyVersion{0, 3}));
    EXPECT_EQ(answer.response->env_reward, 0.5);
  }
  EXPECT_EQ(client_.starts[1].options.at("answer"), "1");
  EXPECT_NE(client_.starts[0].seed, client_.starts[1].seed);
}

TEST_F(RolloutWorkerEpisodeTest, AnEvaluationWhoseEnvironmentFailsEnds) {
  Publish(5);
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::UnavailableError("gone");
  };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(100));
                return Evaluated();
              }).ok());
  EXPECT_THAT(abandoned_, testing::StartsWith("none of 2 rows has an answer; row "));
  EXPECT_THAT(abandoned_, testing::HasSubstr("gone"));
  EXPECT_EQ(client_.open(), 0U);
  EXPECT_FALSE(worker().EvaluationBusy());
}

}  // namespace
}  // namespace freshet
