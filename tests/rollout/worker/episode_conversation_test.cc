#include "rollout/worker/episode_conversation.h"

#include <memory>
#include <string>

#include "datastore/response_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/worker/episode_runner.h"
#include "tests/contract/weight_version.h"
#include "tests/rollout/sessions/toy_chat_tokenizer.h"
#include "tests/rollout/worker/fake_environment_client.h"
#include "tests/rollout/worker/fake_inference_engine.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int32_t kEnd = ToyChatTokenizer::kEnd;
constexpr char kRow[] = R"([{"role":"user","content":"hi"}])";

EpisodeAnswer Message(std::string role, std::string content) {
  EpisodeAnswer answer;
  answer.messages = {{std::move(role), std::move(content)}};
  return answer;
}
EpisodeAnswer Text(std::string observation) { return {std::move(observation), 0, false, false}; }

absl::StatusOr<EpisodeConversation> Converse(const Tokenizer& tokenizer) {
  ChatRequest row;
  row.messages = kRow;
  row.add_generation_prompt = true;
  return EpisodeConversation::Create(tokenizer, row);
}

TEST(EpisodeConversation, OnlyWhatTheEnvironmentSaysIsTokenized) {
  const ToyChatTokenizer tokenizer{};
  auto conversation = Converse(tokenizer);
  ASSERT_TRUE(conversation.ok());
  EXPECT_THAT(*conversation->Start(Message("system", "go")),
              ElementsAre('u', 'h', 'i', kEnd, '\n', 's', 'g', 'o', kEnd, '\n', 'a'));
  // The policy has ended its first turn itself; its second one was cut off.
  EXPECT_THAT(*conversation->Append("x", kEnd, Message("tool", "7")),
              ElementsAre('\n', 't', '7', kEnd, '\n', 'a'));
  EXPECT_THAT(*conversation->Append("y", 'y', Text("no")),
              ElementsAre(kEnd, '\n', 'u', 'n', 'o', kEnd, '\n', 'a'));
}

TEST(EpisodeConversation, NamesWhatIsWrong) {
  const ToyChatTokenizer tokenizer{};
  EpisodeAnswer both = Message("user", "a");
  both.observation = "b";
  EpisodeAnswer tools = Message("user", "a");
  tools.tools = {"{}"};
  const struct {
    EpisodeAnswer answer;
    const char* message;
  } cases[] = {
      {Message("assistant", "a"), "messages[0]: role is 'assistant', want system, user or tool"},
      {Text(""), "neither messages nor the end of the episode"},
      {both, "both an observation and messages"},
      {tools, "tools after the reset"},
  };
  for (const auto& [answer, message] : cases) {
    auto conversation = Converse(tokenizer);
    ASSERT_TRUE(conversation.ok());
    ASSERT_TRUE(conversation->Start({}).ok());
    const absl::Status status = conversation->Append("x", kEnd, answer).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EpisodeAnswer list;
  list.tools = {"{}", "[]"};
  auto conversation = Converse(tokenizer);
  EXPECT_THAT(std::string(conversation->Start(list).status().message()),
              HasSubstr("tools[1]: not a JSON object"));
}

// The engine's tokens are 10, 11, 12, ... by position after the prompt.
class MessageEpisodeTest : public testing::Test {
 protected:
  MessageEpisodeTest() {
    const VersionForTest made = MakeVersion({0, 5}, 1, 100, 64);
    EXPECT_TRUE(engine_.LoadWeights(Lane::kRollout, {made.manifest, made.bytes}).ok());
    engine_.length = [this](int64_t request, int32_t) {
      return static_cast<size_t>(
          engine_.submitted.at(static_cast<size_t>(request - 1)).sampling.max_new_tokens);
    };
    options_.environment = "game";
    options_.max_turn_tokens = 2;
  }
  std::vector<EpisodeResult> Play(std::vector<int32_t> samples, int32_t max_new_tokens) {
    EpisodeText text{DecodeBytes, EncodeBytes};
    text.converse = [this](const std::string&) { return Converse(tokenizer_); };
    runner_ = std::make_unique<EpisodeRunner>(engine_, client_, clock_, std::move(text), options_);
    EpisodeGroup group;
    group.prompt_ids = {1, 2};
    group.attributes["prompt"] = "the row's";
    group.sample_indices = std::move(samples);
    group.sampling.max_new_tokens = max_new_tokens;
    const size_t count = group.sample_indices.size();
    runner_->Start(std::move(group));
    std::vector<EpisodeResult> results;
    for (int turn = 0; turn < 200 && results.size() < count; ++turn) {
      auto outputs = engine_.Poll();
      EXPECT_TRUE(outputs.ok());
      for (EpisodeResult& result : runner_->Advance(*std::move(outputs))) {
        results.push_back(std::move(result));
      }
    }
    EXPECT_THAT(results, SizeIs(count));
    return results;
  }

  const ToyChatTokenizer tokenizer_{};
  FakeClock clock_;
  FakeInferenceEngine engine_;
  FakeEnvironmentClient client_;
  EpisodeOptions options_;
  std::unique_ptr<EpisodeRunner> runner_;
};

TEST_F(MessageEpisodeTest, AResponseBeginsWithItsPrompt) {
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    if (call.turn == 0) return EpisodeAnswer{};
    if (call.turn == 1) return Message("tool", "7");
    return EpisodeAnswer{"", 1, true, false};
  };
  const std::vector<EpisodeResult> results = Play({0, 1}, 100);
  for (const EpisodeResult& result : results) {
    ASSERT_TRUE(result.response.ok()) << result.response.status();
    EXPECT_THAT(result.response->response_ids,
                ElementsAre('u', 'h', 'i', kEnd, '\n', 'a', 10, 11, kEnd, '\n', 't', '7', kEnd,
                            '\n', 'a', 19, 20));
    EXPECT_THAT(result.response->loss_mask,
                ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1));
    EXPECT_EQ(result.response->spans, (std::vector<Span>{{{0, 5}, 0, 17}}));
    EXPECT_EQ(result.response->env_reward, 1);
  }
  ASSERT_THAT(engine_.submitted, SizeIs(2)) << "both samples share requests";
  EXPECT_THAT(engine_.submitted[1].prompt_ids, ElementsAre('u', 'h', 'i', kEnd, '\n', 'a'));
}

TEST_F(MessageEpisodeTest, ThePromptIsPartOfMaxNewTokens) {
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? EpisodeAnswer{} : Message("tool", "7");
  };
  const std::vector<EpisodeResult> cut = Play({0}, 8);
  ASSERT_TRUE(cut.at(0).response.ok()) << cut[0].response.status();
  EXPECT_THAT(cut[0].response->response_ids, ElementsAre('u', 'h', 'i', kEnd, '\n', 'a', 10, 11));
  EXPECT_EQ(cut[0].response->finish, FinishReason::kLength);
  const absl::Status full = Play({0}, 6).at(0).response.status();
  EXPECT_EQ(full.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(full.message()), HasSubstr("the conversation of a reset has 6 tokens"));
}

EpisodeAnswer NewContext(std::string content, double reward = 0) {
  EpisodeAnswer answer = Message("user", std::move(content));
  answer.new_context = true;
  answer.reward = reward;
  return answer;
}

TEST_F(MessageEpisodeTest, ANewContextIsASegment) {
  options_.max_conversations = 2;
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    if (call.turn == 0) return EpisodeAnswer{};
    if (call.turn == 1) return NewContext("go", 0.25);
    if (call.turn == 2) return Message("tool", "7");
    return EpisodeAnswer{"", 1, true, false};
  };
  const std::vector<EpisodeResult> results = Play({0, 1}, 20);
  for (const EpisodeResult& result : results) {
    ASSERT_TRUE(result.response.ok()) << result.response.status();
    const Response& response = *result.response;
    EXPECT_THAT(response.response_ids,
                ElementsAre('u', 'h', 'i', kEnd, '\n', 'a', 10, 11, 'u', 'g', 'o', kEnd, '\n', 'a',
                            10, 11, kEnd, '\n', 't', '7', kEnd, '\n', 'a', 19, 20));
    EXPECT_THAT(response.segments, ElementsAre(0, 8));
    EXPECT_THAT(response.step_rewards,
                ElementsAre(StepReward{8, 0.25}, StepReward{16, 0}, StepReward{25, 1}));
    EXPECT_EQ(response.env_reward, 1.25);
    EXPECT_EQ(response.finish, FinishReason::kStop);
    const ResponseBounds bounds{0, 0, {0, 5}};
    EXPECT_EQ(CheckResponse(response, bounds), absl::OkStatus());
  }
  ASSERT_THAT(engine_.submitted, SizeIs(3)) << "both samples share requests";
  EXPECT_THAT(engine_.submitted[1].prompt_ids, ElementsAre('u', 'g', 'o', kEnd, '\n', 'a'));
  EXPECT_TRUE(engine_.submitted[1].partials.empty());
  EXPECT_NE(engine_.submitted[1].seed, engine_.submitted[0].seed);
  EXPECT_EQ(engine_.submitted[2].seed, engine_.submitted[1].seed);
}

TEST_F(MessageEpisodeTest, AResetMayReplaceTheRowsMessages) {
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? NewContext("go") : EpisodeAnswer{"", 1, true, false};
  };
  const std::vector<EpisodeResult> results = Play({0}, 20);
  ASSERT_TRUE(results[0].response.ok()) << results[0].response.status();
  EXPECT_THAT(results[0].response->response_ids,
              ElementsAre('u', 'g', 'o', kEnd, '\n', 'a', 10, 11));
  EXPECT_TRUE(results[0].response->segments.empty());
}

TEST_F(MessageEpisodeTest, OneConversationTooManyEndsTheEpisode) {
  options_.max_conversations = 2;
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? EpisodeAnswer{} : NewContext("go");
  };
  const std::vector<EpisodeResult> results = Play({0}, 20);
  ASSERT_TRUE(results[0].response.ok()) << results[0].response.status();
  EXPECT_THAT(results[0].response->segments, ElementsAre(0, 8));
  EXPECT_EQ(results[0].response->response_ids.size(), 16U);
  EXPECT_EQ(results[0].response->finish, FinishReason::kLength);
}

TEST_F(MessageEpisodeTest, AContextWithoutRoomForATurnEndsTheEpisode) {
  options_.max_conversations = 2;
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? EpisodeAnswer{} : NewContext("a text that is too long");
  };
  const std::vector<EpisodeResult> results = Play({0}, 20);
  ASSERT_TRUE(results[0].response.ok()) << results[0].response.status();
  EXPECT_EQ(results[0].response->response_ids.size(), 8U);
  EXPECT_TRUE(results[0].response->segments.empty());
  EXPECT_EQ(results[0].response->finish, FinishReason::kLength);
}

TEST_F(MessageEpisodeTest, ANewContextNeedsAJobThatAllowsIt) {
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? EpisodeAnswer{} : NewContext("go");
  };
  const absl::Status status = Play({0}, 20).at(0).response.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("environment.max_conversations above 1"));
}

TEST_F(MessageEpisodeTest, ABadMessageIsUselessToRetry) {
  client_.answer = [](const FakeEnvironmentClient::Call& call) {
    return call.turn == 0 ? EpisodeAnswer{} : Message("assistant", "7");
  };
  const absl::Status status = Play({0}, 100).at(0).response.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("environment game: an observation"));
}

}  // namespace
}  // namespace freshet
