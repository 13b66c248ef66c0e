#include "rollout/worker/agent_runner.h"

#include <set>

#include "datastore/response_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rollout/sessions/toy_chat_tokenizer.h"
#include "tests/rollout/worker/fake_inference_engine.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Keeps the tasks; tests say what becomes of them.
class FakeAgentClient final : public AgentClient {
 public:
  std::map<int64_t, AgentTask> tasks;
  std::set<int64_t> stopped;
  std::vector<AgentEvent> events;

  void Start(int64_t episode, const AgentTask& task) override { tasks[episode] = task; }
  void Stop(int64_t episode) override { stopped.insert(episode); }
  std::vector<AgentEvent> Poll() override { return std::exchange(events, {}); }
};

class AgentRunnerTest : public testing::Test {
 protected:
  void Make() {
    options_.label = "here";
    options_.base_url = "http://127.0.0.1:1/v1";
    runner_ = std::make_unique<AgentRunner>(queue_, sessions_, client_, clock_, options_);
  }
  static EpisodeGroup Group(int64_t id, std::vector<int32_t> samples) {
    EpisodeGroup group;
    group.id = id;
    group.ordinal = id;
    group.prompt_ids = {1};
    group.attributes = {{"answer", "7"}, {"prompt", "?"}};
    group.sample_indices = std::move(samples);
    group.sampling.max_new_tokens = 20;
    return group;
  }
  static std::vector<int32_t> Prompt() { return {'a', 'b'}; }
  // The agent makes one request, whose answer is the token 'x'.
  void Generate(int64_t episode) {
    const auto session = sessions_.Find(client_.tasks.at(episode).api_key);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_NE(*session, nullptr);
    SessionRequest request;
    request.text = "ab";
    const absl::StatusOr<SessionTurn> turn = (*session)->Begin(std::move(request), Prompt);
    ASSERT_TRUE(turn.ok()) << turn.status();
    GeneratedToken token;
    token.token.id = 'x';
    token.policy = {0, 3};
    token.finish = FinishReason::kStop;
    (*session)->Add(turn->request, token);
    (*session)->End(turn->request, absl::OkStatus(), "x");
  }
  void Answer(int64_t episode, absl::StatusOr<AgentReward> reward) {
    client_.events.push_back({episode, std::move(reward)});
  }
  std::vector<EpisodeResult> Advance() { return runner_->Advance({}); }

  const ToyChatTokenizer tokenizer_{};
  FakeInferenceEngine engine_;
  FakeClock clock_;
  GenerationQueue queue_{engine_, {}, clock_};
  SessionRegistry sessions_{tokenizer_, 100};
  FakeAgentClient client_;
  AgentOptions options_;
  std::unique_ptr<AgentRunner> runner_;
};

TEST_F(AgentRunnerTest, ReturnsWhatTheSessionRecordedWithTheReward) {
  Make();
  runner_->Start(Group(4, {2}));
  EXPECT_THAT(Advance(), IsEmpty());
  ASSERT_EQ(client_.tasks.size(), 1U);
  EXPECT_EQ(client_.tasks[1].row.at("answer"), "7");
  EXPECT_EQ(client_.tasks[1].base_url, "http://127.0.0.1:1/v1");
  Generate(1);
  Answer(1, AgentReward{0.5, false});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].group, 4);
  EXPECT_EQ(results[0].sample_index, 2);
  ASSERT_TRUE(results[0].response.ok()) << results[0].response.status();
  EXPECT_THAT(results[0].response->response_ids, ElementsAre('a', 'b', 'x'));
  EXPECT_THAT(results[0].response->loss_mask, ElementsAre(0, 0, 1));
  EXPECT_EQ(results[0].response->env_reward, 0.5);
  EXPECT_EQ(results[0].response->finish, FinishReason::kStop);
  EXPECT_EQ(runner_->open(), 0);
  EXPECT_EQ(sessions_.size(), 0U);
  EXPECT_EQ(runner_->answers(), 1);
}

TEST_F(AgentRunnerTest, SamplesOfAGroupHaveTheSameSeedAndSessionsOfTheirOwn) {
  Make();
  runner_->Start(Group(4, {0, 1}));
  Advance();
  EXPECT_EQ(client_.tasks.at(1).seed, client_.tasks.at(2).seed);
  EXPECT_NE(client_.tasks.at(1).api_key, client_.tasks.at(2).api_key);
}

TEST_F(AgentRunnerTest, AnEpisodeWhoseTokensAreUsedIsTruncatedWithTheReason) {
  options_.max_episode_tokens = 1;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  Generate(1);
  SessionRequest request;
  request.text = "abx?";
  EXPECT_FALSE((*sessions_.Find(client_.tasks.at(1).api_key))->Begin(request, Prompt).ok());
  Answer(1, AgentReward{1, false});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].response->finish, FinishReason::kLength);
  EXPECT_EQ(runner_->counters().truncated, 1);
  EXPECT_EQ(runner_->counters().truncated_by.at(EpisodeLimit::kEpisodeTokens), 1);
}

TEST_F(AgentRunnerTest, BoundsTheEpisodesOfTheAgent) {
  options_.max_concurrent = 1;
  Make();
  runner_->Start(Group(1, {0, 1}));
  Advance();
  EXPECT_EQ(client_.tasks.size(), 1U);
  Generate(1);
  Answer(1, AgentReward{1, true});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].response->finish, FinishReason::kLength);
  EXPECT_EQ(client_.tasks.size(), 2U);
}

TEST_F(AgentRunnerTest, AFailedCallRestartsInANewSessionAndIsGivenUpInTheEnd) {
  options_.max_failures = 2;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  const std::string key = client_.tasks.at(1).api_key;
  Generate(1);
  Answer(1, absl::UnavailableError("status 500: " + key));
  EXPECT_THAT(Advance(), IsEmpty());
  EXPECT_EQ(sessions_.Find(key).status().code(), absl::StatusCode::kUnauthenticated);
  clock_.Advance(absl::Seconds(10));
  Advance();
  ASSERT_TRUE(client_.tasks.contains(2));
  EXPECT_NE(client_.tasks.at(2).api_key, key);
  const std::string second = client_.tasks.at(2).api_key;
  Answer(2, absl::DeadlineExceededError("late " + second));
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].response.status().code(), absl::StatusCode::kDeadlineExceeded);
  const std::string message(results[0].response.status().message());
  EXPECT_THAT(message, HasSubstr("agent here, 2 failures"));
  EXPECT_THAT(message, Not(HasSubstr(second)));
  EXPECT_EQ(runner_->counters().given_up, 1);
}

TEST_F(AgentRunnerTest, AnAgentThatTheEngineFailedHasNotFailed) {
  options_.max_failures = 1;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  const auto session = sessions_.Find(client_.tasks.at(1).api_key);
  SessionRequest request;
  request.text = "ab";
  const absl::StatusOr<SessionTurn> turn = (*session)->Begin(std::move(request), Prompt);
  ASSERT_TRUE(turn.ok()) << turn.status();
  (*session)->End(turn->request, absl::UnavailableError("the server is gone"), "");
  Answer(1, absl::InternalError("status 500: no model"));
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].failure, EpisodeFailure::kRequest);
  EXPECT_EQ(results[0].response.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(results[0].response.status()), HasSubstr("the server is gone"));
}

TEST_F(AgentRunnerTest, AnAgentThatRefusesIsNotAskedAgain) {
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  Answer(1, absl::InvalidArgumentError("status 422"));
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].response.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AgentRunnerTest, AFullAgentIsAskedLater) {
  options_.max_failures = 1;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  Answer(1, absl::ResourceExhaustedError("status 429"));
  EXPECT_THAT(Advance(), IsEmpty());
  clock_.Advance(absl::Seconds(10));
  Advance();
  EXPECT_EQ(client_.tasks.size(), 2U);
  EXPECT_EQ(runner_->counters().refused, 1);
}

TEST_F(AgentRunnerTest, ARewardWithoutARequestIsAFailure) {
  options_.max_failures = 1;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  Answer(1, AgentReward{1, false});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_THAT(std::string(results[0].response.status().message()),
              HasSubstr("no request with its API key"));
}

TEST_F(AgentRunnerTest, WithOptionalRequestsAPolicyThatWasNotAskedHasASampleWithoutLoss) {
  engine_.loaded[static_cast<int>(Lane::kRollout)] = {{1, 6}};
  Make();
  EpisodeGroup group = Group(4, {0, 1});
  group.sampling.stop_ids = {9};
  runner_->Start(std::move(group));
  Advance();
  Generate(2);
  Answer(1, AgentReward{.reward = 0.5, .requests_optional = true});
  Answer(2, AgentReward{.reward = 0.5, .requests_optional = true});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 2U);
  ASSERT_TRUE(results[0].response.ok()) << results[0].response.status();
  const Response& response = *results[0].response;
  EXPECT_EQ(response.finish, FinishReason::kNotAsked);
  EXPECT_EQ(response.env_reward, 0.5);
  EXPECT_THAT(response.response_ids, ElementsAre(9, 9));
  EXPECT_EQ(CheckResponse(response, {6, 0, {1, 6}, true}), absl::OkStatus());
  EXPECT_EQ(results[1].response->finish, FinishReason::kStop) << "it was asked";
  EXPECT_EQ(runner_->counters().not_asked, 1);
  EXPECT_EQ(runner_->counters().terminated, 2);
}

TEST_F(AgentRunnerTest, WithoutAnEndTokenAPolicyThatWasNotAskedSaysNothingEither) {
  engine_.loaded[static_cast<int>(Lane::kRollout)] = {{0, 0}};
  Make();
  runner_->Start(Group(4, {0}));
  Advance();
  Answer(1, AgentReward{.reward = 0.5, .requests_optional = true});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  const Response& response = *results[0].response;
  EXPECT_EQ(CheckResponse(response, {}), absl::OkStatus());
  EXPECT_THAT(CompletionIds(response), IsEmpty());
  EXPECT_EQ(CountLossTokens(response.loss_mask, 0, 2), 0);
}

TEST_F(AgentRunnerTest, ARequestThatTheEngineFailedIsNotOptional) {
  options_.max_failures = 1;
  Make();
  runner_->Start(Group(1, {0}));
  Advance();
  const auto session = sessions_.Find(client_.tasks.at(1).api_key);
  SessionRequest request;
  request.text = "ab";
  const absl::StatusOr<SessionTurn> turn = (*session)->Begin(std::move(request), Prompt);
  ASSERT_TRUE(turn.ok()) << turn.status();
  (*session)->End(turn->request, absl::UnavailableError("the server is gone"), "");
  Answer(1, AgentReward{.reward = 1, .requests_optional = true});
  const std::vector<EpisodeResult> results = Advance();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_FALSE(results[0].response.ok());
  EXPECT_EQ(runner_->counters().not_asked, 0);
}

TEST_F(AgentRunnerTest, CancelEndsCallsAndSessions) {
  Make();
  runner_->Start(Group(1, {0, 1}));
  Advance();
  runner_->Cancel(Lane::kRollout, 1);
  EXPECT_THAT(client_.stopped, ElementsAre(1, 2));
  EXPECT_EQ(sessions_.size(), 0U);
  EXPECT_EQ(runner_->open(), 0);
  Answer(1, AgentReward{1, false});
  EXPECT_THAT(Advance(), IsEmpty());
}

}  // namespace
}  // namespace freshet
