#include "rollout/openai/api_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "rollout/openai/api_error.h"

namespace freshet::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ApiRequest Completion(const std::string& body, const SamplingParams& defaults = {}) {
  const absl::StatusOr<ApiRequest> request = ParseCompletionRequest(body, defaults);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or(ApiRequest());
}
ApiRequest Chat(const std::string& body) {
  const absl::StatusOr<ApiRequest> request = ParseChatRequest(body, {});
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or(ApiRequest());
}
// A chat body with these further members.
std::string ChatBody(const std::string& members) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" +
         (members.empty() ? "" : ", " + members) + "}";
}

ApiRequest Pooling(const std::string& members) {
  const auto request = ParsePoolingRequest(R"({"use_activation": false, )" + members + "}");
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or(ApiRequest());
}
std::string PoolingError(const std::string& body) {
  return std::string(ParsePoolingRequest(body).status().message());
}

TEST(ApiRequest, PoolingTakesTextsIdsOrMessages) {
  ApiRequest request = Pooling(R"("input": ["a", [3]], "model": "rm", "task": "classify")");
  EXPECT_TRUE(request.pooling);
  EXPECT_FALSE(request.chat);
  EXPECT_EQ(request.model, "rm");
  ASSERT_EQ(request.prompts.size(), 2U);
  EXPECT_EQ(request.prompts[0].text, "a");
  EXPECT_THAT(request.prompts[1].ids, ElementsAre(3));
  EXPECT_TRUE(request.add_special_tokens);
  request = Pooling(R"("messages": [{"role": "user", "content": "hi"}], "user": "me",
                       "encoding_format": "float", "add_special_tokens": false)");
  EXPECT_TRUE(request.chat);
  EXPECT_FALSE(request.conversation.add_generation_prompt);
}

TEST(ApiRequest, PoolingNamesWhatItDoesNotSupport) {
  EXPECT_THAT(PoolingError(R"({"input": "a"})"), HasSubstr("use_activation: want false"));
  EXPECT_THAT(PoolingError(R"({"input": "a", "use_activation": 0})"), HasSubstr("use_activation"));
  struct Case {
    const char* member;
    const char* value;
  };
  for (const auto& [member, value] :
       {Case{"task", R"("embed")"}, Case{"task", R"("token_classify")"}, Case{"messages", "[]"},
        Case{"encoding_format", R"("base64")"}, Case{"truncate_prompt_tokens", "5"},
        Case{"dimensions", "2"}, Case{"chat_template", R"("x")"}, Case{"model", "1"},
        Case{"prompt", R"("a")"}, Case{"normalize", "true"}, Case{"priority", "1"}}) {
    EXPECT_THAT(PoolingError(std::string(R"({"use_activation": false, "input": "a", ")") + member +
                             "\": " + value + "}"),
                HasSubstr(member));
  }
  for (const char* input : {"null", "[]", "[[]]", "[[1], \"\", 2]", "{}", "1.5", "[1.5]", "[-1]",
                            "[[4294967296]]", "[[[1]]]"}) {
    EXPECT_THAT(PoolingError(std::string(R"({"use_activation": false, "input": )") + input + "}"),
                HasSubstr("input: "))
        << input;
  }
  std::string many = "[1]";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += ",[1]";
  EXPECT_THAT(PoolingError(R"({"use_activation": false, "input": [)" + many + "]}"),
              HasSubstr("input: has 1025 prompts, want at most 1024"));
  EXPECT_THAT(PoolingError(R"({"use_activation": false, "messages": [{"role": "user",
                  "content": "a"}], "input": "a"})"),
              HasSubstr("input: this parameter is not supported"));
  for (const char* body : {"", "[]", "1", "{", R"({"input": "a")"}) {
    EXPECT_THAT(PoolingError(body), HasSubstr("body")) << body;
  }
}

TEST(ApiRequest, PromptsAreTextsIdsOrListsOfThem) {
  EXPECT_EQ(Completion(R"({"prompt": "hi"})").prompts[0].text, "hi");
  EXPECT_THAT(Completion(R"({"prompt": [1, 2]})").prompts[0].ids, ElementsAre(1, 2));
  const ApiRequest request = Completion(R"({"prompt": ["a", [3]]})");
  ASSERT_EQ(request.prompts.size(), 2U);
  EXPECT_EQ(request.prompts[0].text, "a");
  EXPECT_THAT(request.prompts[1].ids, ElementsAre(3));
}

TEST(ApiRequest, CompletionDefaults) {
  const ApiRequest request =
      Completion(R"({"prompt": "hi", "user": "me", "unknown": null, "seed": null})");
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_FALSE(request.seed.has_value());
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.skip_special_tokens);
}

TEST(ApiRequest, ReadsSamplingParameters) {
  const ApiRequest request = Completion(R"({"prompt": "hi", "n": 3, "max_tokens": 5,
      "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1,
      "presence_penalty": -1, "frequency_penalty": 2, "min_tokens": 2, "seed": -4,
      "logit_bias": {"5": -100, "6": 1.5}, "stop": ["x", "yz"], "stop_token_ids": [8],
      "ignore_eos": true, "logprobs": 4, "return_token_ids": true, "stream": true,
      "stream_options": {"include_usage": true}})");
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.frequency_penalty, 2);
  EXPECT_EQ(request.sampling.min_new_tokens, 2);
  EXPECT_EQ(request.seed, static_cast<uint64_t>(-4));
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(std::pair(5, -100.0F), std::pair(6, 1.5F)));
  EXPECT_THAT(request.stop, ElementsAre("x", "yz"));
  EXPECT_THAT(request.stop_token_ids, ElementsAre(8));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.sampling.top_logprobs, 4);
  EXPECT_TRUE(request.return_token_ids);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
}

TEST(ApiRequest, TheModelsDefaultsApplyToAbsentParameters) {
  const SamplingParams defaults = SamplingDefaults(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 7, "eos_token_id": [1, 2]})");
  const ApiRequest request = Completion(R"({"prompt": "hi", "top_p": 1})", defaults);
  EXPECT_EQ(request.sampling.temperature, 0.6);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.min_p, 0);  // out of range
  EXPECT_EQ(SamplingDefaults("").temperature, 1);
}

TEST(ApiRequest, ATinyTemperatureOfTheModelIsGreedy) {
  EXPECT_EQ(SamplingDefaults(R"({"temperature": 1e-5})").temperature, 0);
  EXPECT_EQ(SamplingDefaults(R"({"temperature": 1e-4})").temperature, 1e-4);
}

TEST(ApiRequest, TopKOfMinusOneIsAll) {
  EXPECT_EQ(Completion(R"({"prompt": "hi", "top_k": -1})").sampling.top_k, 0);
}

TEST(ApiRequest, ChatMessagesReachTheTemplate) {
  const ApiRequest request = Chat(R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"}],
      "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(request.conversation.messages,
            R"([{"role":"system","content":"a\nb"},)"
            R"({"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":{"z":1,"a":2}}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"3"}])");
  EXPECT_EQ(request.conversation.kwargs, R"({"enable_thinking":false})");
  EXPECT_TRUE(request.conversation.add_generation_prompt);
  EXPECT_FALSE(request.max_tokens.has_value());
}

TEST(ApiRequest, ContinuingTheFinalMessageReplacesTheGenerationPrompt) {
  const ApiRequest request = Chat(ChatBody(R"("continue_final_message": true)"));
  EXPECT_TRUE(request.conversation.continue_final_message);
  EXPECT_FALSE(request.conversation.add_generation_prompt);
}

TEST(ApiRequest, MaxCompletionTokensIsMaxTokens) {
  EXPECT_EQ(Chat(ChatBody(R"("max_completion_tokens": 9)")).max_tokens, 9);
  EXPECT_EQ(Chat(ChatBody(R"("max_tokens": 8)")).max_tokens, 8);
}

TEST(ApiRequest, ToolCallsAreParsedUnlessTheChoiceIsNone) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  const ApiRequest request = Chat(ChatBody(tools));
  EXPECT_TRUE(request.parse_tool_calls);
  EXPECT_EQ(request.conversation.tools,
            R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  EXPECT_FALSE(Chat(ChatBody(tools + R"(, "tool_choice": "none")")).parse_tool_calls);
  EXPECT_FALSE(Chat(ChatBody(R"("tools": [])")).parse_tool_calls);
}

TEST(ApiRequest, WhatAsksForNothingIsAccepted) {
  Completion(R"({"prompt": "hi", "echo": false, "suffix": "", "best_of": 1, "bad_words": [],
                 "response_format": {"type": "text"}, "use_beam_search": false,
                 "cache_salt": null, "priority": 0, "length_penalty": 1.0, "store": true})");
  Chat(ChatBody(R"("modalities": ["text"], "function_call": "none", "response_format": null)"));
}

struct BadRequest {
  const char* name;
  bool chat;
  std::string body;     // for chat: further members
  const char* param;    // null: none
  const char* message;  // a part of it
};
void PrintTo(const BadRequest& bad, std::ostream* out) { *out << bad.name; }

class BadRequestTest : public testing::TestWithParam<BadRequest> {};

TEST_P(BadRequestTest, NamesTheParameter) {
  const BadRequest& bad = GetParam();
  const absl::Status status = bad.chat ? ParseChatRequest(ChatBody(bad.body), {}).status()
                                       : ParseCompletionRequest(bad.body, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto error = nlohmann::json::parse(ErrorBody(status))["error"];
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["type"], "BadRequestError");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(bad.message));
  if (bad.param == nullptr) {
    EXPECT_TRUE(error["param"].is_null());
  } else {
    EXPECT_EQ(error["param"], bad.param);
  }
}

std::string With(const std::string& members) { return R"({"prompt": "hi", )" + members + "}"; }

INSTANTIATE_TEST_SUITE_P(
    Bad, BadRequestTest,
    testing::Values(
        BadRequest{"NotJson", false, "{", nullptr, "body"},
        BadRequest{"NotAnObject", false, "[]", nullptr, "not a JSON object"},
        BadRequest{"TooDeep", false, With("\"x\": " + std::string(100, '[')), nullptr, "body"},
        BadRequest{"NoPrompt", false, "{}", "prompt", "missing"},
        BadRequest{"EmptyPrompt", false, R"({"prompt": []})", "prompt", "empty"},
        BadRequest{"TinyTemperature", false, With("\"temperature\": 5e-5"), "temperature",
                   "want 0 or a number from 0.0001"},
        BadRequest{"CacheSalt", false, With(R"("cache_salt": "x")"), "cache_salt", "not supported"},
        BadRequest{"Typo", false, With("\"temprature\": 0"), "temprature", "not supported"},
        BadRequest{"ChatMember", false, With(R"("messages": [])"), "messages", "not supported"},
        BadRequest{"UsageOften", false,
                   With(R"("stream": true, "stream_options": {"continuous_usage_stats": true})"),
                   "stream_options", "continuous_usage_stats"},
        BadRequest{"ReasoningEffort", true, R"("reasoning_effort": "high")", "reasoning_effort",
                   "not supported"},
        BadRequest{"KwargsMessages", true, R"("chat_template_kwargs": {"messages": []})",
                   "chat_template_kwargs", "must not set messages"},
        BadRequest{"KwargsPrompt", true,
                   R"("chat_template_kwargs": {"add_generation_prompt": false})",
                   "chat_template_kwargs", "must not set add_generation_prompt"},
        BadRequest{"MixedPrompt", false, R"({"prompt": [1, "a"]})", "prompt", "token ids"},
        BadRequest{"NegativeId", false, R"({"prompt": [-1]})", "prompt", "token ids"},
        BadRequest{"Temperature", false, With("\"temperature\": -1"), "temperature", "is -1"},
        BadRequest{"TemperatureType", false, With(R"("temperature": "hot")"), "temperature",
                   "\"hot\""},
        BadRequest{"TopP", false, With("\"top_p\": 0"), "top_p", "is 0"},
        BadRequest{"N", false, With("\"n\": 0"), "n", "1 to 128"},
        BadRequest{"MaxTokens", false, With("\"max_tokens\": 0"), "max_tokens", "is 0"},
        BadRequest{"Huge", false, With("\"max_tokens\": 18446744073709551615"), "max_tokens",
                   "18446744073709551615"},
        BadRequest{"EmptyStop", false, With(R"("stop": [""])"), "stop", "1 to 1024 bytes"},
        BadRequest{"BiasKey", false, With(R"("logit_bias": {"a": 1})"), "logit_bias", "\"a\""},
        BadRequest{"Bias", false, With(R"("logit_bias": {"1": 101})"), "logit_bias", "token 1"},
        BadRequest{"Logprobs", false, With("\"logprobs\": 21"), "logprobs", "0 to 20"},
        BadRequest{"Echo", false, With("\"echo\": true"), "echo", "not supported"},
        BadRequest{"Suffix", false, With(R"("suffix": "x")"), "suffix", "not supported"},
        BadRequest{"StreamOptions", false, With(R"("stream_options": {})"), "stream_options",
                   "stream: true"},
        BadRequest{"Schema", true, R"("response_format": {"type": "json_object"})",
                   "response_format", "not supported"},
        BadRequest{"ToolChoice", true, R"("tool_choice": "required")", "tool_choice",
                   "not supported"},
        BadRequest{"Tool", true, R"("tools": [{"type": "web_search"}])", "tools", "tools[0]"},
        BadRequest{"TopLogprobs", true, R"("top_logprobs": 2)", "top_logprobs", "logprobs: true"},
        BadRequest{"Kwargs", true, R"("chat_template_kwargs": [])", "chat_template_kwargs",
                   "object"}),
    [](const auto& tested) { return tested.param.name; });

struct BadMessages {
  const char* name;
  const char* messages;
  const char* message;
};
void PrintTo(const BadMessages& bad, std::ostream* out) { *out << bad.name; }

class BadMessagesTest : public testing::TestWithParam<BadMessages> {};

TEST_P(BadMessagesTest, NamesTheMessage) {
  const absl::Status status =
      ParseChatRequest(std::string(R"({"messages": )") + GetParam().messages + "}", {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_THAT(ErrorBody(status), HasSubstr(R"("param":"messages")"));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, BadMessagesTest,
    testing::Values(
        BadMessages{"None", "[]", "at least one"}, BadMessages{"Null", "null", "missing"},
        BadMessages{"Text", "\"hi\"", "list"},
        BadMessages{"NoRole", R"([{"content": "a"}])", "messages[0]: not an object with a role"},
        BadMessages{"Image", R"([{"role": "user", "content": [{"type": "image_url"}]}])",
                    "only parts of type text"},
        BadMessages{"Arguments",
                    R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f",
                        "arguments": "{"}}]}])",
                    "messages[0]: tool_calls[0]"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet::openai
