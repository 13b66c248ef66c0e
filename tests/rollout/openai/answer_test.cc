#include "rollout/openai/answer.h"

#include <limits>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/char_tokenizer.h"

namespace freshet::openai {
namespace {

using testing::ElementsAre;

constexpr char kAlphabet[] = "abcdefgh";  // ids 0..7; 8 is the end token
constexpr int32_t kEnd = 8;

// The objects of a stream, in order.
std::vector<Json> Objects(const std::string& events) {
  std::vector<Json> objects;
  size_t at = 0;
  while (at < events.size()) {
    const size_t end = events.find("\n\n", at);
    const std::string line = events.substr(at, end - at);
    EXPECT_TRUE(absl::StartsWith(line, "data: ")) << line;
    objects.push_back(Json::parse(line.substr(6), nullptr, false));
    at = end + 2;
  }
  return objects;
}

class AnswerTest : public testing::Test {
 protected:
  AnswerTest() { request_.stop_token_ids = {7}; }

  Answer Make() {
    return Answer({"cmpl-1", "m", 12}, std::make_shared<ApiRequest>(request_), {{0, 1}, {2}},
                  {kEnd, 7}, *tokenizer_);
  }
  Answer MakeChat() {
    request_.chat = true;
    return Answer({"chatcmpl-1", "m", 12}, std::make_shared<ApiRequest>(request_), {{0, 1}},
                  {kEnd, 7}, *tokenizer_);
  }
  // Adds tokens of one sample; the last one ends it.
  static std::string Add(Answer& answer, size_t prompt, int32_t sample, std::vector<int32_t> ids,
                         FinishReason finish) {
    std::string events;
    for (size_t i = 0; i < ids.size(); ++i) {
      GeneratedToken token;
      token.sample_index = sample;
      token.token.id = ids[i];
      token.token.logprob = -0.5F;
      token.token.top = {{3, -0.25F}, {ids[i], -0.5F}};
      token.policy = {0, i < 2 ? 7 : 8};
      if (i + 1 == ids.size()) token.finish = finish;
      events += answer.Add(prompt, token);
    }
    return events;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer(kAlphabet);
  ApiRequest request_;
};

TEST_F(AnswerTest, ChoicesRunByPromptThenSample) {
  request_.n = 2;
  Answer answer = Make();
  EXPECT_EQ(Add(answer, 1, 0, {4}, FinishReason::kLength), "");
  Add(answer, 0, 1, {3, kEnd}, FinishReason::kStop);
  Add(answer, 1, 1, {5}, FinishReason::kLength);
  Add(answer, 0, 0, {2, 7}, FinishReason::kStop);
  const Json body = Json::parse(answer.Body());
  EXPECT_EQ(body["id"], "cmpl-1");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["created"], 12);
  EXPECT_EQ(body["model"], "m");
  const Json& choices = body["choices"];
  ASSERT_EQ(choices.size(), 4U);
  EXPECT_EQ(choices[0], Json::parse(R"({"index": 0, "text": "c", "logprobs": null,
      "finish_reason": "stop", "stop_reason": 7})"));
  EXPECT_EQ(choices[1], Json::parse(R"({"index": 1, "text": "d", "logprobs": null,
      "finish_reason": "stop", "stop_reason": null})"));
  EXPECT_EQ(choices[2]["text"], "e");
  EXPECT_EQ(choices[2]["finish_reason"], "length");
  EXPECT_EQ(body["usage"], Json::parse(R"({"prompt_tokens": 3, "total_tokens": 9,
      "completion_tokens": 6})"));
}

TEST_F(AnswerTest, CutsAtStopStrings) {
  request_.stop = {"cd"};
  Answer answer = Make();
  Add(answer, 0, 0, {0, 2, 3}, FinishReason::kStop);
  Add(answer, 1, 0, {0, 2}, FinishReason::kLength);
  const Json choices = Json::parse(answer.Body())["choices"];
  EXPECT_EQ(choices[0]["text"], "a");
  EXPECT_EQ(choices[0]["finish_reason"], "stop");
  EXPECT_EQ(choices[0]["stop_reason"], "cd");
  EXPECT_EQ(choices[1]["text"], "ac");
}

TEST_F(AnswerTest, TokenIdsComeWithTheVersionsThatSampledThem) {
  request_.return_token_ids = true;
  Answer answer = Make();
  Add(answer, 0, 0, {3, 4, kEnd}, FinishReason::kStop);
  Add(answer, 1, 0, {5}, FinishReason::kLength);
  const Json choices = Json::parse(answer.Body())["choices"];
  EXPECT_EQ(choices[0]["token_ids"], Json({3, 4, kEnd}));
  EXPECT_EQ(choices[0]["prompt_token_ids"], Json({0, 1}));
  EXPECT_EQ(choices[1]["prompt_token_ids"], Json({2}));
  EXPECT_EQ(choices[0]["weight_versions"], Json::parse(R"([{"version": "0.7", "start": 0, "end": 2},
                            {"version": "0.8", "start": 2, "end": 3}])"));
}

TEST_F(AnswerTest, CompletionLogprobs) {
  request_.logprobs = true;
  Answer answer = Make();
  Add(answer, 0, 0, {4, 5}, FinishReason::kLength);
  Add(answer, 1, 0, {5}, FinishReason::kLength);
  EXPECT_EQ(Json::parse(answer.Body())["choices"][0]["logprobs"],
            Json::parse(R"({"text_offset": [0, 1], "token_logprobs": [-0.5, -0.5],
                            "tokens": ["e", "f"],
                            "top_logprobs": [{"e": -0.5, "d": -0.25}, {"f": -0.5, "d": -0.25}]})"));
}

TEST_F(AnswerTest, TokensCanBeNamedByTheirIds) {
  request_.logprobs = true;
  request_.tokens_as_ids = true;
  Answer answer = Make();
  Add(answer, 0, 0, {4}, FinishReason::kLength);
  Add(answer, 1, 0, {5}, FinishReason::kLength);
  EXPECT_EQ(Json::parse(answer.Body())["choices"][0]["logprobs"]["tokens"], Json({"token_id:4"}));
}

TEST_F(AnswerTest, ChatLogprobs) {
  request_.logprobs = true;
  Answer answer = MakeChat();
  Add(answer, 0, 0, {4}, FinishReason::kLength);
  EXPECT_EQ(Json::parse(answer.Body())["choices"][0]["logprobs"]["content"],
            Json::parse(R"([{"token": "e", "logprob": -0.5, "bytes": [101], "top_logprobs": [
                {"token": "d", "logprob": -0.25, "bytes": [100]},
                {"token": "e", "logprob": -0.5, "bytes": [101]}]}])"));
}

TEST_F(AnswerTest, LogprobsAreFiniteNumbers) {
  request_.logprobs = true;
  Answer answer = MakeChat();
  GeneratedToken token;
  token.token.logprob = -std::numeric_limits<float>::infinity();
  token.finish = FinishReason::kLength;
  answer.Add(0, token);
  EXPECT_EQ(Json::parse(answer.Body())["choices"][0]["logprobs"]["content"][0]["logprob"], -9999.0);
}

TEST_F(AnswerTest, ChatBody) {
  request_.return_token_ids = true;
  Answer answer = MakeChat();
  Add(answer, 0, 0, {4, kEnd}, FinishReason::kStop);
  const Json body = Json::parse(answer.Body());
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"],
            Json::parse(R"({"role": "assistant", "content": "e", "refusal": null})"));
  EXPECT_EQ(body["choices"][0]["token_ids"], Json({4, kEnd}));
  EXPECT_EQ(body["prompt_token_ids"], Json({0, 1}));
}

TEST_F(AnswerTest, CompletionStream) {
  request_.stream = true;
  request_.include_usage = true;
  request_.return_token_ids = true;
  Answer answer = Make();
  const std::vector<Json> events = Objects(Add(answer, 1, 0, {4, kEnd}, FinishReason::kStop));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0], Json::parse(R"({"id": "cmpl-1", "object": "text_completion", "created": 12,
      "model": "m", "choices": [{"index": 1, "text": "e", "logprobs": null, "finish_reason": null,
      "stop_reason": null, "token_ids": [4], "prompt_token_ids": [2]}], "usage": null})"));
  EXPECT_EQ(events[1]["choices"], Json::parse(R"([{"index": 1, "text": "", "logprobs": null,
      "finish_reason": "stop", "stop_reason": null, "token_ids": [8],
      "weight_versions": [{"version": "0.7", "start": 0, "end": 2}]}])"));
  const std::string end = answer.EndOfStream();
  EXPECT_TRUE(absl::EndsWith(end, "data: [DONE]\n\n"));
  const Json usage = Objects(end)[0];
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
}

TEST_F(AnswerTest, ChatStreamStartsWithTheRole) {
  request_.stream = true;
  Answer answer = MakeChat();
  const std::vector<Json> events = Objects(Add(answer, 0, 0, {4, 5}, FinishReason::kLength));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0], Json::parse(R"({"id": "chatcmpl-1", "object": "chat.completion.chunk",
      "created": 12, "model": "m", "choices": [{"index": 0,
      "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]})"));
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"content": "e"})"));
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::parse(R"({"content": "f"})"));
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer.EndOfStream(), "data: [DONE]\n\n");
}

TEST_F(AnswerTest, HeldBackTextIsNotSent) {
  request_.stream = true;
  request_.stop = {"cd"};
  Answer answer = Make();
  const std::vector<Json> events = Objects(Add(answer, 0, 0, {0, 2, 3}, FinishReason::kStop));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["choices"][0]["text"], "a");
  EXPECT_EQ(events[1]["choices"][0]["text"], "");
  EXPECT_EQ(events[1]["choices"][0]["stop_reason"], "cd");
}

TEST_F(AnswerTest, StreamedTextOffsetsGoOn) {
  request_.stream = true;
  request_.logprobs = true;
  Answer answer = Make();
  const std::vector<Json> events = Objects(Add(answer, 0, 0, {4, 5}, FinishReason::kLength));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], Json({1}));
}

class ToolAnswerTest : public AnswerTest {
 protected:
  ToolAnswerTest() {
    request_.chat = true;
    request_.parse_tool_calls = true;
  }
  // Adds the tokens of a text and the end token.
  static std::string AddText(Answer& answer, const Tokenizer& tokenizer, const std::string& text) {
    std::vector<int32_t> ids = *tokenizer.Encode(text);
    ids.push_back(*tokenizer.eos_id());
    return Add(answer, 0, 0, std::move(ids), FinishReason::kStop);
  }
  Answer MakeWithTools() {
    return Answer({"chatcmpl-1", "m", 12}, std::make_shared<ApiRequest>(request_), {{0}},
                  {*words_->eos_id()}, *words_, ToolCallFormat::kHermes);
  }
  const std::unique_ptr<Tokenizer> words_ =
      *CreateCharTokenizer("<tol_ca>{}\":/nmergusf,h1234567890 ");
};

constexpr char kTwoCalls[] = R"(sure <tool_call>{"name": "a", "arguments": {"e": 1}}</tool_call>)"
                             R"(<tool_call>{"name": "e", "arguments": {}}</tool_call>)";

TEST_F(ToolAnswerTest, CallsOfTools) {
  Answer answer = MakeWithTools();
  AddText(answer, *words_, kTwoCalls);
  const Json choice = Json::parse(answer.Body())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"].get<std::string>().substr(0, 4), "sure");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], Json::parse(R"({"name": "a", "arguments": "{\"e\": 1}"})"));
  EXPECT_EQ(calls[1]["function"]["name"], "e");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(ToolAnswerTest, AMessageOfCallsOnlyHasNoContent) {
  request_.parallel_tool_calls = false;
  Answer answer = MakeWithTools();
  AddText(answer, *words_, std::string(kTwoCalls).substr(5));
  const Json message = Json::parse(answer.Body())["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"].size(), 1U);
}

TEST_F(ToolAnswerTest, StreamedCallsAreNumbered) {
  request_.stream = true;
  Answer answer = MakeWithTools();
  Json calls = Json::array();
  for (const Json& event : Objects(AddText(answer, *words_, kTwoCalls))) {
    const Json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    for (const Json& call : delta["tool_calls"]) calls.push_back(call);
  }
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"e": 1})");
}

TEST_F(ToolAnswerTest, WithoutToolsCallsAreText) {
  request_.parse_tool_calls = false;
  Answer answer = MakeWithTools();
  AddText(answer, *words_, kTwoCalls);
  EXPECT_EQ(Json::parse(answer.Body())["choices"][0]["message"]["content"], kTwoCalls);
}

TEST_F(AnswerTest, AFailedStreamEndsWithTheError) {
  const std::string events = Answer::FailedStream(absl::InternalError("no memory"));
  EXPECT_EQ(Objects(events)[0]["error"]["message"], "no memory");
  EXPECT_TRUE(absl::EndsWith(events, "data: [DONE]\n\n"));
}

}  // namespace
}  // namespace freshet::openai
