#include "rollout/worker/episode_runner.h"

#include <limits>
#include <memory>
#include <optional>

#include "base/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/rollout/worker/fake_environment_client.h"
#include "tests/rollout/worker/fake_inference_engine.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using Call = FakeEnvironmentClient::Call;

// The engine's tokens are 10, 11, 12, ... by position. Each request runs to its own limit.
class EpisodeRunnerTest : public testing::Test {
 protected:
  EpisodeRunnerTest() {
    Load(5);
    engine_.length = [this](int64_t request, int32_t) {
      return static_cast<size_t>(
          engine_.submitted.at(static_cast<size_t>(request - 1)).sampling.max_new_tokens);
    };
    options_.environment = "game";
    options_.max_turn_tokens = 2;
    options_.retry_delay = absl::Seconds(1);
    options_.max_retry_delay = absl::Seconds(4);
  }

  void Load(int64_t version) {
    const VersionForTest made = MakeVersion({0, version}, 1, 100, 64);
    ASSERT_TRUE(engine_.LoadWeights(Lane::kRollout, {made.manifest, made.bytes}).ok());
  }
  EpisodeRunner& runner() {
    if (runner_ == nullptr) {
      runner_ = std::make_unique<EpisodeRunner>(engine_, client_, clock_,
                                                EpisodeText{DecodeBytes, EncodeBytes}, options_);
    }
    return *runner_;
  }
  EpisodeGroup Group(std::vector<int32_t> samples, int64_t id = 7) {
    EpisodeGroup group;
    group.id = id;
    group.prompt_ids = {1, 2};
    group.seed = 77;
    group.ordinal = id;
    group.sample_indices = std::move(samples);
    group.sampling.max_new_tokens = max_new_tokens_;
    return group;
  }
  // One turn of the worker: processes the engine's output and collects results.
  void Turn() {
    auto outputs = engine_.Poll();
    ASSERT_TRUE(outputs.ok());
    for (EpisodeResult& result : runner().Advance(*std::move(outputs))) {
      results_.push_back(std::move(result));
    }
  }
  void RunUntilResults(size_t n) {
    for (int turn = 0; turn < 200 && results_.size() < n; ++turn) Turn();
    ASSERT_THAT(results_, SizeIs(n));
  }
  const Response& OnlyResponse() {
    EXPECT_THAT(results_, SizeIs(1));
    EXPECT_TRUE(results_.at(0).response.ok()) << results_.at(0).response.status();
    return *results_.at(0).response;
  }

  FakeClock clock_;
  FakeInferenceEngine engine_;
  FakeEnvironmentClient client_;
  EpisodeOptions options_;
  int32_t max_new_tokens_ = 100;
  std::vector<EpisodeResult> results_;

 private:
  std::unique_ptr<EpisodeRunner> runner_;
};

EpisodeAnswer Says(std::string observation, double reward = 0) {
  return {std::move(observation), reward, false, false};
}
EpisodeAnswer Ends(double reward) { return {"ignored", reward, true, false}; }

TEST_F(EpisodeRunnerTest, AResponseIsTheWholeDialogue) {
  client_.answer = [](const Call& call) {
    return call.turn == 0 ? Says("") : call.turn == 1 ? Says("ab", 0.25) : Ends(0.5);
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  const Response& response = OnlyResponse();
  EXPECT_THAT(response.response_ids, ElementsAre(10, 11, 'a', 'b', 14, 15));
  EXPECT_THAT(response.loss_mask, ElementsAre(1, 1, 0, 0, 1, 1));
  EXPECT_THAT(response.behavior_logprobs, ElementsAre(-0.5F, -0.5F, 0.F, 0.F, -0.5F, -0.5F));
  EXPECT_EQ(response.spans, (std::vector<Span>{{{0, 5}, 0, 6}}));
  EXPECT_EQ(response.finish, FinishReason::kStop);
  EXPECT_EQ(response.env_reward, 0.75);
  EXPECT_THAT(response.step_rewards, ElementsAre(StepReward{2, 0.25}, StepReward{6, 0.5}));
  EXPECT_EQ(results_[0].group, 7);
  EXPECT_EQ(results_[0].sample_index, 0);
  EXPECT_EQ(runner().open(), 0);
  EXPECT_EQ(client_.open(), 0U);
  EXPECT_EQ(runner().counters().terminated, 1);
  EXPECT_EQ(runner().counters().turns, 2);
}

TEST_F(EpisodeRunnerTest, InvalidTurnsBearNoLossIfTheJobSaysSo) {
  options_.max_turns = 3;
  client_.answer = [](const Call& call) {
    EpisodeAnswer answer = Says(call.turn == 0 ? "" : "a");
    answer.invalid = call.turn == 2;
    return answer;
  };
  for (const bool mask : {false, true}) {
    options_.mask_invalid_turns = mask;
    EpisodeRunner runner(engine_, client_, clock_, {DecodeBytes, EncodeBytes}, options_);
    runner.Start(Group({0}));
    std::vector<EpisodeResult> results;
    for (int i = 0; i < 20 && results.empty(); ++i) results = runner.Advance(*engine_.Poll());
    ASSERT_THAT(results, SizeIs(1));
    ASSERT_TRUE(results[0].response.ok());
    const uint8_t second = mask ? 0 : 1;
    EXPECT_THAT(results[0].response->loss_mask, ElementsAre(1, 1, 0, second, second, 0, 1, 1));
    EXPECT_EQ(results[0].response->behavior_logprobs[3], -0.5F);
  }
}

TEST(MaskTurns, ASampleOfInvalidTurnsLearnsFromTheLast) {
  Response response;
  response.loss_mask = {1, 1, 0, 1, 0};
  MaskTurns({{0, 2}, {3, 4}}, response);
  EXPECT_THAT(response.loss_mask, ElementsAre(0, 0, 0, 1, 0));
  MaskTurns({}, response);
  EXPECT_THAT(response.loss_mask, ElementsAre(0, 0, 0, 1, 0));
}

TEST_F(EpisodeRunnerTest, AnEpisodeIsTruncatedAfterTheTurnInWhichItsTimeIsOver) {
  options_.max_time = absl::Seconds(10);
  client_.answer = [this](const Call& call) {
    if (call.turn > 0) clock_.Advance(absl::Seconds(6));
    return call.turn == 0 ? Says("") : Says("ab", 0.25);
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  const Response& response = OnlyResponse();
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_EQ(response.env_reward, 0.5);
  EXPECT_EQ(runner().counters().turns, 2);
  EXPECT_EQ(runner().counters().truncated, 1);
}

TEST_F(EpisodeRunnerTest, EpisodesOfARequestThatTheEngineCannotAnswerAreGivenUp) {
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Ends(1); };
  engine_.fail_request = [this](int64_t request) {
    const bool bad = engine_.submitted.at(static_cast<size_t>(request - 1)).ordinal == 7;
    return bad ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  runner().Start(Group({0, 1}));
  runner().Start(Group({0}, 8));
  RunUntilResults(3);
  for (const EpisodeResult& result : results_) {
    EXPECT_EQ(result.failure == EpisodeFailure::kRequest, result.group == 7);
    EXPECT_EQ(result.response.status(),
              result.group == 7 ? absl::InternalError("a bad answer") : absl::OkStatus());
  }
  EXPECT_EQ(runner().open(), 0);
  EXPECT_EQ(client_.open(), 0U);
}

TEST_F(EpisodeRunnerTest, ObservationsHaveASamplingLogprobOfZeroWhereTurnsHaveOne) {
  client_.answer = [](const Call& call) {
    return call.turn == 2 ? Ends(1) : Says(call.turn == 0 ? "" : "ab");
  };
  EpisodeGroup group = Group({0});
  group.sampling.top_p = 0.9;
  runner().Start(std::move(group));
  RunUntilResults(1);
  EXPECT_THAT(OnlyResponse().sampling_logprobs,
              ElementsAre(-0.25F, -0.25F, 0.F, 0.F, -0.25F, -0.25F));
}

TEST_F(EpisodeRunnerTest, TheActionIsTheTextOfTheTurnAlone) {
  client_.answer = [](const Call& call) { return call.turn == 2 ? Ends(1) : Says("ab"); };
  runner().Start(Group({0}));
  RunUntilResults(1);
  ASSERT_THAT(client_.calls, SizeIs(3));
  // The reset's observation occupies positions 0 and 1.
  EXPECT_EQ(client_.calls[1].action, DecodeBytes({12, 13}));
  EXPECT_EQ(client_.calls[2].action, DecodeBytes({16, 17}));
}

TEST_F(EpisodeRunnerTest, ATurnGoesOnWithTheTokensBeforeIt) {
  client_.answer = [](const Call& call) { return call.turn == 2 ? Ends(1) : Says("a"); };
  runner().Start(Group({3}));
  RunUntilResults(1);
  ASSERT_THAT(engine_.submitted, SizeIs(2));
  const GenerationRequest& second = engine_.submitted[1];
  EXPECT_THAT(second.prompt_ids, ElementsAre(1, 2));
  EXPECT_THAT(second.sample_indices, ElementsAre(3));
  EXPECT_EQ(second.ordinal, 7);
  EXPECT_EQ(second.seed, 77U);
  ASSERT_THAT(second.partials, SizeIs(1));
  EXPECT_THAT(second.partials[0].response_ids, ElementsAre('a', 11, 12, 'a'));
  EXPECT_EQ(second.partials[0].finish, FinishReason::kNone);
  EXPECT_EQ(second.sampling.max_new_tokens, 6);
}

TEST_F(EpisodeRunnerTest, MessagesNeedAJobThatRendersThem) {
  client_.answer = [](const Call&) {
    EpisodeAnswer answer;
    answer.messages = {{"user", "hi"}};
    return answer;
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  EXPECT_EQ(results_[0].response.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(results_[0].response.status().message()),
              testing::HasSubstr("need environment.observations: messages"));
}

TEST_F(EpisodeRunnerTest, AnObservationBelongsToTheSpanOfItsTurn) {
  client_.answer = [this](const Call& call) {
    if (call.turn == 1) Load(6);  // before the observation arrives
    return call.turn == 2 ? Ends(1) : Says("ab");
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  const std::vector<Span> expected = {{{0, 5}, 0, 6}, {{0, 6}, 6, 8}};
  EXPECT_EQ(OnlyResponse().spans, expected);
}

TEST_F(EpisodeRunnerTest, EndsAfterTheLastTurn) {
  options_.max_turns = 3;
  client_.answer = [](const Call& call) { return Says("a", call.turn); };
  runner().Start(Group({0}));
  RunUntilResults(1);
  const Response& response = OnlyResponse();
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_EQ(response.env_reward, 6.0);               // 0 + 1 + 2 + 3
  EXPECT_EQ(response.response_ids.size(), 1U + 8U);  // a, xxa, xxa, xx
  EXPECT_EQ(runner().counters().truncated, 1);
}

TEST_F(EpisodeRunnerTest, EndsWhenTheTokensOfItsTurnsAreUsed) {
  options_.max_episode_tokens = 5;
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("abc") : Says("a", 1); };
  EpisodeGroup group = Group({0});
  group.sampling.min_new_tokens = 9;
  runner().Start(std::move(group));
  RunUntilResults(1);
  const Response& response = OnlyResponse();
  // abc, xxa, xxa, x: observations do not count.
  EXPECT_THAT(response.loss_mask, ElementsAre(0, 0, 0, 1, 1, 0, 1, 1, 0, 1));
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_EQ(response.env_reward, 3) << "the last turn is answered";
  EXPECT_EQ(runner().counters().truncated_by.at(EpisodeLimit::kEpisodeTokens), 1);
}

TEST_F(EpisodeRunnerTest, EndsAfterTheTurnInWhichItsCostIsReached) {
  options_.max_cost = 1;
  client_.answer = [](const Call& call) {
    EpisodeAnswer answer = Says("");
    answer.cost = call.turn == 0 ? 0.25 : 0.375;
    return answer;
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  EXPECT_EQ(OnlyResponse().finish, FinishReason::kLength);
  EXPECT_EQ(runner().counters().turns, 2);  // 0.25 + 0.375 + 0.375
  EXPECT_EQ(runner().counters().truncated_by.at(EpisodeLimit::kCost), 1);
}

TEST_F(EpisodeRunnerTest, ACostThatIsNoneIsAFailure) {
  options_.max_failures = 1;
  for (const double cost : {-1.0, std::numeric_limits<double>::infinity()}) {
    client_.answer = [cost](const Call&) {
      EpisodeAnswer answer = Says("");
      answer.cost = cost;
      return answer;
    };
    runner().Start(Group({0}));
    results_.clear();
    Turn();
    ASSERT_THAT(results_, SizeIs(1));
    EXPECT_EQ(results_[0].response.status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(EpisodeRunnerTest, EndsWhenTheEnvironmentTruncates) {
  client_.answer = [](const Call& call) {
    return call.turn == 0 ? Says("") : EpisodeAnswer{"a", 0.5, false, true};
  };
  runner().Start(Group({0}));
  RunUntilResults(1);
  EXPECT_EQ(OnlyResponse().finish, FinishReason::kLength);
  EXPECT_EQ(OnlyResponse().env_reward, 0.5);
  EXPECT_EQ(OnlyResponse().response_ids.size(), 2U);
}

TEST_F(EpisodeRunnerTest, EndsWhenAnObservationLeavesNoRoomForATurn) {
  max_new_tokens_ = 5;
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Says("abc", 0.5); };
  EpisodeGroup group = Group({0});
  group.sampling.top_p = 0.9;
  runner().Start(std::move(group));
  RunUntilResults(1);
  const Response& response = OnlyResponse();
  EXPECT_EQ(response.sampling_logprobs.size(), 2U);
  EXPECT_THAT(response.response_ids, ElementsAre(10, 11));
  EXPECT_EQ(response.spans, (std::vector<Span>{{{0, 5}, 0, 2}}));
  EXPECT_EQ(response.loss_mask.size(), 2U);
  EXPECT_EQ(response.behavior_logprobs.size(), 2U);
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_EQ(response.env_reward, 0.5);
}

TEST_F(EpisodeRunnerTest, TheLastTurnTakesWhatIsLeft) {
  max_new_tokens_ = 6;
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Says("abc"); };
  runner().Start(Group({0}));
  RunUntilResults(1);
  EXPECT_THAT(OnlyResponse().response_ids, ElementsAre(10, 11, 'a', 'b', 'c', 15));
}

TEST_F(EpisodeRunnerTest, SamplesOfAGroupMeetTheSameEpisode) {
  options_.options = {{"max", "10"}, {"level", "1"}};
  EpisodeGroup group = Group({0, 2, 5});
  group.attributes = {{"level", "9"}, {"answer", "4"}};
  group.uids = {"j/7/0/0", "j/7/0/2", "j/7/0/5"};
  runner().Start(std::move(group));
  runner().Start(Group({0}, 8));
  ASSERT_THAT(client_.starts, SizeIs(4));
  EXPECT_EQ(client_.starts[0].environment, "game");
  EXPECT_EQ(client_.starts[0].seed, client_.starts[2].seed);
  EXPECT_NE(client_.starts[0].seed, client_.starts[3].seed);
  EXPECT_THAT(client_.starts[0].options,
              UnorderedElementsAre(Pair("max", "10"), Pair("level", "9"), Pair("answer", "4")));
  // Each sample has its own trace.
  EXPECT_EQ(client_.starts[1].traceparent,
            Traceparent(MakeTraceContext("j/7/0/2", "rollout", /*ratio=*/0)));
  EXPECT_EQ(client_.starts[3].traceparent, "");  // a sample without a uid has no trace
  Turn();
  ASSERT_THAT(engine_.submitted, SizeIs(2));  // one request per group
  EXPECT_THAT(engine_.submitted[0].sample_indices, ElementsAre(0, 2, 5));
  EXPECT_THAT(engine_.submitted[0].partials, IsEmpty());
}

TEST_F(EpisodeRunnerTest, WaitsForNobodyWhileAnEnvironmentThinks) {
  runner().Start(Group({0}));
  client_.held = true;
  for (int i = 0; i < 5; ++i) Turn();
  EXPECT_THAT(engine_.submitted, IsEmpty());
  runner().Start(Group({0}, 8));
  client_.held = false;
  Turn();
  EXPECT_THAT(engine_.submitted, SizeIs(2));
}

TEST_F(EpisodeRunnerTest, TellsForHowLongNoEnvironmentHasAnswered) {
  const auto silence = [this] {
    return DescribeSilence(runner().counters(), runner().label(), clock_.Now());
  };
  runner().Start(Group({0, 1}));
  client_.held = true;
  Turn();
  EXPECT_EQ(silence(), "");
  clock_.Advance(absl::Milliseconds(5250));
  Turn();
  EXPECT_EQ(silence(), "2 episodes wait for environment game since 5s");
  EXPECT_EQ(runner().counters().waiting_for_environment, 2);
  client_.held = false;
  Turn();
  EXPECT_EQ(silence(), "") << "both are in the engine";
  EXPECT_EQ(runner().counters().waiting_for_environment, 0);
  clock_.Advance(absl::Seconds(60));
  client_.held = true;
  for (int i = 0; i < 3; ++i) Turn();
  EXPECT_EQ(runner().counters().waiting_for_environment, 2);
  clock_.Advance(absl::Milliseconds(300));
  EXPECT_EQ(silence(), "2 episodes wait for environment game since 300ms");
  runner().Cancel(Lane::kRollout, 7);
  Turn();
  EXPECT_EQ(silence(), "");
}

TEST_F(EpisodeRunnerTest, AFailureIsNoAnswer) {
  options_.max_failures = 1;
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::UnavailableError("refused");
  };
  const auto silence = [this] {
    return DescribeSilence(runner().counters(), runner().label(), clock_.Now());
  };
  runner().Start(Group({0}));
  Turn();
  ASSERT_THAT(results_, SizeIs(1));
  clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(silence(), "environment game does not answer since 3s");
  client_.held = true;
  runner().Start(Group({0}));
  Turn();
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(silence(), "1 episodes wait for environment game since 4s");
  runner().Cancel(Lane::kRollout, 7);
  client_.held = false;
  client_.answer = [](const Call&) { return Says("a"); };
  runner().Start(Group({0}));
  Turn();
  EXPECT_EQ(silence(), "");
}

TEST_F(EpisodeRunnerTest, TurnsWaitWhenTheEngineIsFull) {
  engine_.capacity = 2;
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Ends(1); };
  runner().Start(Group({0, 1, 2}));
  Turn();
  ASSERT_THAT(engine_.submitted, SizeIs(2));  // 3 do not fit; 1 and 1 do
  EXPECT_EQ(engine_.Running(), 2);
  EXPECT_TRUE(runner().waiting_for_engine());
  EXPECT_EQ(runner().counters().waiting_for_engine, 1);
  RunUntilResults(3);
  EXPECT_FALSE(runner().waiting_for_engine());
}

TEST_F(EpisodeRunnerTest, AFailedEpisodeBeginsAgainWithItsSeed) {
  int failures = 0;
  client_.answer = [&failures](const Call& call) -> FakeEnvironmentClient::Answer {
    if (call.turn == 1 && failures++ == 0) return absl::UnavailableError("gone");
    return call.turn == 2 ? Ends(1) : Says("a", 0.125);
  };
  runner().Start(Group({0}));
  for (int i = 0; i < 5; ++i) Turn();
  ASSERT_THAT(client_.starts, SizeIs(1)) << "it waits before it tries again";
  clock_.Advance(absl::Seconds(1));
  RunUntilResults(1);
  ASSERT_THAT(client_.starts, SizeIs(2));
  EXPECT_EQ(client_.starts[0].seed, client_.starts[1].seed);
  EXPECT_THAT(OnlyResponse().response_ids, ElementsAre('a', 11, 12, 'a', 14, 15));
  EXPECT_EQ(OnlyResponse().env_reward, 1.25);  // only the second try counts
  EXPECT_EQ(runner().counters().restarted, 1);
}

TEST_F(EpisodeRunnerTest, AFailureNamesAnEnvironmentWithoutANameByItsLabel) {
  options_.environment = "";
  options_.label = "grpc host:1";
  options_.max_failures = 1;
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::UnavailableError("refused");
  };
  runner().Start(Group({4}));
  Turn();
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].response.status().message(),
            "environment grpc host:1, 1 failures, the last: refused");
  EXPECT_EQ(client_.starts.front().environment, "");
}

TEST_F(EpisodeRunnerTest, IsGivenUpAfterSoManyFailures) {
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::DeadlineExceededError("slow");
  };
  runner().Start(Group({4}));
  for (int i = 0; i < 20 && results_.empty(); ++i) {
    Turn();
    clock_.Advance(absl::Seconds(4));
  }
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].sample_index, 4);
  EXPECT_EQ(results_[0].response.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(results_[0].response.status().message(),
            "environment game, 3 failures, the last: slow");
  EXPECT_THAT(client_.starts, SizeIs(3));
  EXPECT_EQ(runner().open(), 0);
  EXPECT_EQ(runner().counters().given_up, 1);
}

TEST_F(EpisodeRunnerTest, PausesGrowToTheirBound) {
  options_.max_failures = 6;
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::UnavailableError("gone");
  };
  runner().Start(Group({0}));
  std::vector<int> seconds;
  for (int second = 0; results_.empty() && second < 100; ++second) {
    const size_t before = client_.starts.size();
    Turn();
    if (client_.starts.size() > before) seconds.push_back(second);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(seconds, ElementsAre(1, 3, 7, 11, 15));  // delays 1, 2, 4, 4, 4
}

TEST_F(EpisodeRunnerTest, FullWorkersAreNoFailure) {
  int refusals = 0;
  client_.answer = [&refusals](const Call& call) -> FakeEnvironmentClient::Answer {
    if (call.turn == 0 && ++refusals <= 10) return absl::ResourceExhaustedError("full");
    return call.turn == 0 ? Says("") : Ends(1);
  };
  runner().Start(Group({0}));
  for (int i = 0; i < 100 && results_.empty(); ++i) {
    Turn();
    clock_.Advance(absl::Seconds(4));
  }
  EXPECT_EQ(OnlyResponse().env_reward, 1.0);
  EXPECT_EQ(runner().counters().refused, 10);
  EXPECT_EQ(runner().counters().restarted, 0);
}

TEST_F(EpisodeRunnerTest, WorkersThatStayFullAreAFailureInTheEnd) {
  options_.max_refusals = 4;
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::ResourceExhaustedError("full");
  };
  runner().Start(Group({0}));
  for (int i = 0; i < 100 && results_.empty(); ++i) {
    Turn();
    clock_.Advance(absl::Seconds(4));
  }
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].response.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(client_.starts, SizeIs(12));  // 3 failures with 4 refusals each
}

TEST_F(EpisodeRunnerTest, WhatNoRetryMendsEndsAtOnce) {
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::InvalidArgumentError("options.max: 'x'");
  };
  runner().Start(Group({0}));
  Turn();
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].response.status().message(), "environment game: options.max: 'x'");
}

TEST_F(EpisodeRunnerTest, AnObservationWithoutTokensEndsAtOnce) {
  EpisodeRunner runner(engine_, client_, clock_,
                       {DecodeBytes,
                        [](const std::string&) -> absl::StatusOr<std::vector<int32_t>> {
                          return absl::InvalidArgumentError("no such character");
                        }},
                       options_);
  client_.answer = [](const Call&) { return Says("?"); };
  runner.Start(Group({0}));
  const std::vector<EpisodeResult> results = runner.Advance({});
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(results[0].response.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EpisodeRunnerTest, AResetThatFillsTheResponseEndsAtOnce) {
  max_new_tokens_ = 3;
  client_.answer = [](const Call&) { return Says("abc"); };
  runner().Start(Group({0}));
  Turn();
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].response.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EpisodeRunnerTest, AnAnswerThatBreaksTheContractIsAFailure) {
  int resets = 0;
  client_.answer = [&resets](const Call& call) {
    if (call.turn == 0) return ++resets == 1 ? Ends(0) : Says("");
    return resets == 2 ? Says("", std::numeric_limits<double>::quiet_NaN()) : Ends(1);
  };
  runner().Start(Group({0}));
  for (int i = 0; i < 20 && results_.empty(); ++i) {
    Turn();
    clock_.Advance(absl::Seconds(4));
  }
  EXPECT_EQ(OnlyResponse().env_reward, 1.0);
  EXPECT_EQ(runner().counters().restarted, 2);
}

TEST_F(EpisodeRunnerTest, ACancelledGroupIsForgotten) {
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Ends(1); };
  runner().Start(Group({0, 1}));
  runner().Start(Group({0}, 8));
  Turn();
  ASSERT_EQ(engine_.Running(), 3);
  runner().Cancel(Lane::kRollout, 7);
  EXPECT_EQ(engine_.Running(), 1);
  EXPECT_EQ(client_.open(), 1U);
  EXPECT_EQ(runner().open(), 1);
  RunUntilResults(1);
  EXPECT_EQ(results_[0].group, 8);
  runner().Cancel(Lane::kRollout, 7);  // a repeated cancel has no effect
}

TEST_F(EpisodeRunnerTest, CancelWorksInEveryState) {
  client_.answer = [](const Call&) -> FakeEnvironmentClient::Answer {
    return absl::UnavailableError("gone");
  };
  runner().Start(Group({0}));
  Turn();  // waits for its retry
  runner().Cancel(Lane::kRollout, 7);
  clock_.Advance(absl::Seconds(10));
  Turn();
  EXPECT_THAT(client_.starts, SizeIs(1));

  client_.answer = [](const Call&) { return Says(""); };
  client_.held = true;
  runner().Start(Group({0}));
  runner().Cancel(Lane::kRollout, 7);
  client_.held = false;
  Turn();
  EXPECT_THAT(engine_.submitted, IsEmpty());

  engine_.capacity = 1;
  runner().Start(Group({0, 1}));
  Turn();
  ASSERT_TRUE(runner().waiting_for_engine());
  runner().Cancel(Lane::kRollout, 7);
  EXPECT_FALSE(runner().waiting_for_engine());
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_THAT(results_, IsEmpty());
}

TEST_F(EpisodeRunnerTest, AGroupStartedAnewReplacesTheFormer) {
  client_.answer = [](const Call& call) { return call.turn == 0 ? Says("") : Ends(1); };
  runner().Start(Group({0, 1}));
  Turn();
  runner().Start(Group({1}));
  RunUntilResults(1);
  for (int i = 0; i < 5; ++i) Turn();
  EXPECT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].sample_index, 1);
}

}  // namespace
}  // namespace freshet
