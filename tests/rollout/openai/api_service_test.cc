#include "rollout/openai/api_service.h"

#include <regex>

#include "nlohmann/json.hpp"
#include "tests/rollout/openai/api_service_fixture.h"

namespace freshet::openai {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_F(ApiServiceTest, ListsTheModel) {
  Start();
  const json list = json::parse(Call(Request("/v1/models")).body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "m");
  EXPECT_EQ(list["data"][0]["max_model_len"], 256);
  EXPECT_EQ(json::parse(Call(Request("/v1/models/m")).body)["id"], "m");
  ExpectError(Call(Request("/v1/models/other")), 404, "other");
}

TEST_F(ApiServiceTest, PlansWithTheLimitOfTheEnginesServer) {
  auto engine = std::make_unique<ScriptedEngine>();
  engine->max_tokens = 40;
  Start(std::move(engine));
  EXPECT_EQ(json::parse(Call(Request("/v1/models/m")).body)["max_model_len"], 40);
  ExpectError(Complete(R"({"prompt": "abcde", "max_tokens": 36, "ignore_eos": true})"), 400,
              "leave 35 of this model's context of 40");
}

TEST_F(ApiServiceTest, RefusesUnknownPathsAndMethods) {
  Start();
  ExpectError(Call(Request("/v1/nothing")), 404, "/v1/nothing");
  ExpectError(Call(Request("/v1/nothing", "{}")), 404, "/v1/nothing");
  ExpectError(Call(Request("/v1/completions")), 405, "wants POST");
  ExpectError(Call(Request("/v1/models", "{}")), 405, "wants GET");
}

TEST_F(ApiServiceTest, CompletesText) {
  Start();
  const runtime::HttpResponse response =
      Complete(R"({"model": "m", "prompt": "a", "max_tokens": 3})");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  EXPECT_EQ(body["choices"][0]["text"], "bcd");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["total_tokens"], 4);
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, SixteenTokensAreTheDefault) {
  Start();
  EXPECT_EQ(json::parse(Complete(R"({"prompt": "a"})").body)["usage"]["completion_tokens"], 16);
}

TEST_F(ApiServiceTest, StopsAtTheEndToken) {
  Start();
  const json choice = json::parse(Complete(R"({"prompt": ["0", [3]], "max_tokens": 40})").body);
  EXPECT_EQ(choice["choices"][0]["text"], "1234");
  EXPECT_EQ(choice["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(choice["choices"][1]["text"], "efghijklmnopqrstuvwxyz01234");
  const json ignored =
      json::parse(Complete(R"({"prompt": "4", "max_tokens": 3, "ignore_eos": true})").body);
  EXPECT_EQ(ignored["choices"][0]["text"], "ab");
}

TEST_F(ApiServiceTest, StreamsChats) {
  Start();
  const runtime::HttpResponse response = Call(Request("/v1/chat/completions", R"({"stream": true,
      "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})"));
  EXPECT_THAT(response.content_type, HasSubstr("text/event-stream"));
  EXPECT_THAT(response.body, testing::StartsWith("data: {"));
  EXPECT_THAT(response.body, HasSubstr(R"("delta":{"content":"b"})"));
  EXPECT_THAT(response.body, HasSubstr(R"("delta":{"content":"c"})"));
  EXPECT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, AnswersInAChatMayFillTheContext) {
  Start();
  const json body = json::parse(Call(Request("/v1/chat/completions", R"({"ignore_eos": true,
      "messages": [{"role": "user", "content": "hi"}]})"))
                                    .body);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["total_tokens"], ScriptedEngine::kContext);
}

TEST_F(ApiServiceTest, NamesWhatIsWrong) {
  Start();
  ExpectError(Complete(R"({"prompt": "a", "model": "gpt"})"), 404, "\"gpt\" does not exist");
  ExpectError(Complete(R"({"prompt": "a", "top_k": "x"})"), 400, "top_k");
  ExpectError(Complete(R"({"prompt": "!"})"), 400, "prompt: ");
  ExpectError(Complete(R"({"prompt": [32]})"), 400, "vocabulary of 32");
  ExpectError(Complete(R"({"prompt": "a", "logit_bias": {"32": 1}})"), 400, "logit_bias");
  ExpectError(Complete(R"({"prompt": "a", "max_tokens": 256})"), 400, "leave 255");
  ExpectError(Complete(R"({"prompt": "a", "min_tokens": 17})"), 400, "above the 16 tokens");
  ExpectError(Complete(R"({"prompt": ")" + std::string(256, 'a') + "\"}"), 400, "256 tokens");
  runtime::HttpRequest text = Request("/v1/completions", R"({"prompt": "a"})");
  text.headers["content-type"] = "text/plain";
  ExpectError(Call(text), 400, "Content-Type");
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, RefusesForeignHosts) {
  Start();
  runtime::HttpRequest request = Request("/v1/models");
  request.host = "evil.example:8000";
  ExpectError(Call(request), 403, "evil.example");
  request.host = "unix:/x";
  ExpectError(Call(request), 403, "unix:/x");
  for (const char* local : {"localhost", "LOCALHOST:8000", "[::1]:8000", ""}) {
    request.host = local;
    EXPECT_EQ(Call(request).status, 200) << local;
  }
}

TEST_F(ApiServiceTest, TakesAnyHostFromTheHolderOfASession) {
  Start();
  runtime::HttpRequest request = Of(OpenSession(), "/v1/models", "");
  request.host = "rollout-0.example:8000";
  EXPECT_EQ(Call(request).status, 200);
  request.path = "/health";  // needs no key, so a key does not help
  ExpectError(Call(request), 403, "rollout-0.example");
}

TEST_F(ApiServiceTest, ChecksTheKey) {
  options_.api_key = "secret";
  Start();
  runtime::HttpRequest request = Request("/v1/models");
  ExpectError(Call(request), 401, "API key");
  ExpectError(service_->CheckHead(request).value(), 401, "API key");
  EXPECT_EQ(Header(Call(request), "WWW-Authenticate"), "Bearer");
  request.headers["authorization"] = "Bearer wrong";
  ExpectError(Call(request), 401, "API key");
  request.headers["authorization"] = "Bearer secret";
  EXPECT_EQ(Call(request).status, 200);
  EXPECT_FALSE(service_->CheckHead(request).has_value());
  EXPECT_EQ(Call(Request("/health")).status, 200);
}

TEST_F(ApiServiceTest, RefusesABodyThatNothingReadsBeforeItIsReceived) {
  Start();
  for (const char* path : {"/health", "/x", "/v1/models"}) {
    runtime::HttpRequest request = Request(path);
    request.method = "POST";
    const int status = path == std::string_view("/x") ? 404 : 405;
    ExpectError(service_->CheckHead(request).value(), status, path);
  }
}

TEST_F(ApiServiceTest, AClientThatGoesAwayCancelsItsCall) {
  Start(Gated(2));
  const auto reply =
      Begin(Request("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})"));
  ASSERT_TRUE(reply->started.WaitFor(kGuard));
  reply->Close();
  gate_.Notify();
  ExpectNothingHeld();
  EXPECT_LT(reply->response().body.size(), 2000U);
}

TEST_F(ApiServiceTest, TheEndOfASessionCancelsItsCall) {
  Start(Gated(2));
  const std::string key = OpenSession();
  const auto reply = Begin(Of(key, "/v1/completions", R"({"prompt": "a", "max_tokens": 200})"));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  EXPECT_EQ(sessions_.Close(key).requests, 0);
  gate_.Notify();
  ASSERT_TRUE(reply->done.WaitFor(kGuard));
  ExpectError(reply->response(), 401, "the session of this API key has ended");
  ExpectNothingHeld();
  EXPECT_LT(loop_->stats().engine.tokens_generated, 200);
}

TEST_F(ApiServiceTest, ARepeatedRequestOfASessionGetsTheRecordedAnswer) {
  Start();
  for (const std::string body : {R"({"prompt": "a", "max_tokens": 3})",
                                 R"({"prompt": "a", "max_tokens": 3, "stream": true})"}) {
    const std::string key = OpenSession();
    const runtime::HttpResponse first = Call(Of(key, "/v1/completions", body));
    EXPECT_THAT(first.body, HasSubstr(R"("finish_reason":"length")"));
    const int64_t generated = loop_->stats().engine.tokens_generated;
    const runtime::HttpResponse again = Call(Of(key, "/v1/completions", body));
    const std::regex id("cmpl-[0-9a-f]*");
    EXPECT_EQ(std::regex_replace(again.body, id, ""), std::regex_replace(first.body, id, ""));
    EXPECT_EQ(again.content_type, first.content_type);
    EXPECT_EQ(loop_->stats().engine.tokens_generated, generated);
    EXPECT_EQ(sessions_.Close(key).requests, 1);
  }
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, ASessionMayHaveSeveralConversations) {
  Start();
  const std::string key = OpenSession(/*conversations=*/2);
  for (const std::string prompt : {"a", "b"}) {
    const runtime::HttpResponse response =
        Call(Of(key, "/v1/completions", R"({"prompt": ")" + prompt + R"(", "max_tokens": 3})"));
    EXPECT_EQ(response.status, 200) << response.body;
  }
  ExpectError(Call(Of(key, "/v1/completions", R"({"prompt": "c"})")), 400, "max_conversations");
  const SessionRecord record = sessions_.Close(key);
  EXPECT_EQ(record.requests, 2);
  EXPECT_THAT(record.response.segments, testing::ElementsAre(0, 4));
  EXPECT_EQ(record.response.response_ids.size(), 8U);

  const std::string one = OpenSession();
  Call(Of(one, "/v1/completions", R"({"prompt": "a", "max_tokens": 3})"));
  ExpectError(Call(Of(one, "/v1/completions", R"({"prompt": "b"})")), 400,
              "may only be appended to");
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, ConversationsOfASessionRunAtTheSameTimeAndShareItsTokens) {
  options_.parser_threads = 1;
  Start(Gated(2, /*max_sequences=*/2));
  const std::string key = OpenSession(/*conversations=*/2, /*max_tokens=*/20);
  const auto a = Begin(Of(key, "/v1/completions", R"({"prompt": "a", "max_tokens": 200})"));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  const auto b = Begin(Of(key, "/v1/completions", R"({"prompt": "b", "stream": true})"));
  // The parser is done with the request before.
  ExpectError(Call(Of(key, "/v1/completions", R"({"prompt": "b", "stream": true})")), 409,
              "the same request");
  gate_.Notify();
  ASSERT_TRUE(a->done.WaitFor(kGuard));
  ASSERT_TRUE(b->done.WaitFor(kGuard));
  EXPECT_THAT(a->response().body, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(b->response().body, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(b->response().body, HasSubstr("[DONE]"));
  ExpectError(Call(Of(key, "/v1/completions", R"({"prompt": "c"})")), 400, "max_episode_tokens");
  const SessionRecord record = sessions_.Close(key);
  EXPECT_EQ(record.limit, EpisodeLimit::kEpisodeTokens);
  EXPECT_EQ(record.response.segments.size(), 2U);
  EXPECT_GE(record.response.response_ids.size(), 2U + 20U);       // the prompts and max_tokens
  EXPECT_LE(record.response.response_ids.size(), 2U + 20U + 1U);  // one more of the other request
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, AStreamThatCannotBeWrittenCancelsItsCall) {
  auto engine = std::make_unique<ScriptedEngine>();
  Start(std::move(engine));
  auto reply = std::make_shared<FakeReply>();
  reply->max_writes = 2;
  service_->Handle(Request("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 200, "n": 2,
                                                  "ignore_eos": true, "stream": true})"),
                   reply);
  ASSERT_TRUE(reply->done.WaitFor(kGuard));
  ExpectNothingHeld();
  EXPECT_LT(loop_->stats().engine.tokens_generated, 4 * 200);
}

TEST_F(ApiServiceTest, AFullQueueAnswers429) {
  loop_options_.max_waiting = 1;
  options_.parser_threads = 1;
  Start(Gated(0));
  const auto running = Begin(Request("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  const auto waiting = Begin(Request("/v1/completions", R"({"prompt": "a"})"));
  ExpectError(Complete("{"), 400, "body");  // the parser is done with the request before
  ExpectError(Complete(R"({"prompt": "b"})"), 429, "too many requests wait");
  ExpectError(Complete(R"({"prompt": ["a", "b"]})"), 400, "want at most 1");
  gate_.Notify();
  ASSERT_TRUE(waiting->done.WaitFor(kGuard));
  ASSERT_TRUE(running->done.WaitFor(kGuard));
  EXPECT_EQ(running->response().status, 200);
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, TenThousandRequestsAtOnceAreAnsweredOrRefused) {
  Start();
  const std::string bodies[] = {
      R"({"prompt": "a", "max_tokens": 2})",
      R"({"prompt": "a", "max_tokens": 200, "stream": true, "ignore_eos": true})",
      R"({"prompt": ")" + std::string(300, 'a') + "\"}",  // beyond the context
  };
  std::vector<std::shared_ptr<FakeReply>> replies;
  for (size_t i = 0; i < 10'000; ++i) {
    replies.push_back(Begin(Request("/v1/completions", bodies[i % 3])));
    if (i % 3 == 1) replies.back()->Close();  // the client is gone
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    if (i % 3 == 1) continue;
    ASSERT_TRUE(replies[i]->done.WaitFor(kGuard)) << i;
    const runtime::HttpResponse response = replies[i]->response();
    if (response.status == 429) continue;
    EXPECT_EQ(response.status, i % 3 == 0 ? 200 : 400) << response.body;
  }
  EXPECT_EQ(Complete(R"({"prompt": "a", "max_tokens": 2})").status, 200);
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, BoundsTheBytesThatWaitToBeParsed) {
  options_.max_unparsed_bytes = 100;
  const auto first = BlockParser();
  const std::string large = R"({"prompt": ")" + std::string(80, 'a') + "\"}";
  const runtime::HttpResponse refused = Complete(large);
  ExpectError(refused, 429, "too many requests wait to be parsed");
  EXPECT_EQ(Header(refused, "Retry-After"), "1");
  EXPECT_EQ(service_->stats().unparsed, 1);
  const json health = json::parse(Call(Request("/health")).body);
  EXPECT_EQ(health["unparsed"], 1);
  EXPECT_EQ(health["refused"], 1);
  gate_.Notify();
  ASSERT_TRUE(first->done.WaitFor(kGuard));
  EXPECT_EQ(Complete(large).status, 200);
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, DoesNotParseForClientsThatAreGone) {
  const auto first = BlockParser();
  const auto gone = Begin(Request("/v1/completions", R"({"prompt": "b"})"));
  gone->Close();
  gate_.Notify();
  ASSERT_TRUE(first->done.WaitFor(kGuard));
  ExpectError(Complete("{"), 400, "body");  // the parser is done with the request before
  EXPECT_EQ(encoded_, 1);
  EXPECT_FALSE(gone->done.HasBeenNotified());
}

TEST_F(ApiServiceTest, DoesNotParseWhileItDrains) {
  const auto first = BlockParser();
  const auto waiting = Begin(Request("/v1/completions", R"({"prompt": "b"})"));
  loop_->StartDrain();
  gate_.Notify();
  ASSERT_TRUE(waiting->done.WaitFor(kGuard));
  ExpectError(waiting->response(), 503, "shutting down");
  EXPECT_EQ(Header(waiting->response(), "Retry-After"), "1");
  EXPECT_EQ(encoded_, 1);
}

TEST_F(ApiServiceTest, AnExceptionIsStatus500) {
  tokenizer_->on_encode = [] { throw std::bad_alloc(); };
  Start();
  ExpectError(Complete(R"({"prompt": "a"})"), 500, "could not handle");
  EXPECT_EQ(service_->stats().unparsed_bytes, 0);
  EXPECT_EQ(Call(Request("/health")).status, 200);
}

TEST_F(ApiServiceTest, SaysThatNoChatTemplateCanBeRendered) {
  tokenizer_->chat_available = false;
  Start();
  const runtime::HttpResponse refused =
      Call(Request("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"));
  ExpectError(refused, 503, "no thread is free");
  EXPECT_EQ(Header(refused, "Retry-After"), "1");
  EXPECT_EQ(Call(Request("/health")).status, 503);
  EXPECT_EQ(Complete(R"({"prompt": "a"})").status, 200);
}

TEST_F(ApiServiceTest, AConversationThatCannotFitIsNotRendered) {
  Start();
  const std::string large(size_t{kMinInputBytes}, 'a');
  ExpectError(Call(Request("/v1/chat/completions",
                           R"({"messages": [{"role": "user", "content": ")" + large + R"("}]})")),
              400, "want at most 262144");
}

TEST_F(ApiServiceTest, AStoppedLoopEndsAnswersAndStreamsWithAnError) {
  auto engine = std::make_unique<ScriptedEngine>();
  engine->on_poll = [this, polls = 0]() mutable {
    if (++polls < 3) return absl::OkStatus();
    polling_.Notify();
    while (!loop_->draining()) std::this_thread::yield();  // Stop has begun
    return absl::OkStatus();
  };
  Start(std::move(engine));
  const std::string body = R"({"prompt": "a", "max_tokens": 200, "ignore_eos": true)";
  const auto stream = Begin(Request("/v1/completions", body + R"(, "stream": true})"));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  loop_->Stop();
  ASSERT_TRUE(stream->done.WaitFor(kGuard));
  EXPECT_THAT(stream->response().body, HasSubstr(R"("code":503)"));
  EXPECT_THAT(stream->response().body, testing::EndsWith("data: [DONE]\n\n"));
  ExpectError(Complete(body + "}"), 503, "shutting down");
}

TEST_F(ApiServiceTest, AnswersRunningCallsWhileItDrains) {
  Start(Gated(0));
  const auto running = Begin(Request("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  loop_->StartDrain();
  ExpectError(Complete(R"({"prompt": "a"})"), 503, "shutting down");
  EXPECT_EQ(Call(Request("/health")).status, 503);
  gate_.Notify();
  ASSERT_TRUE(running->done.WaitFor(kGuard));
  EXPECT_EQ(running->response().status, 200);
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, AFailureInMidStreamEndsTheStreamWithTheError) {
  auto engine = std::make_unique<ScriptedEngine>();
  engine->on_poll = [polls = 0]() mutable {
    return ++polls == 3 ? absl::InternalError("no memory") : absl::OkStatus();
  };
  Start(std::move(engine));
  const runtime::HttpResponse response =
      Complete(R"({"prompt": "a", "max_tokens": 9, "stream": true})");
  EXPECT_THAT(response.body, HasSubstr(R"("message":"no memory")"));
  EXPECT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
  ExpectError(Complete(R"({"prompt": [1000000]})"), 400, "vocabulary");
  ExpectNothingHeld();
}

TEST_F(ApiServiceTest, ASeedRepeatsTheAnswer) {
  options_.defaults.temperature = 100;
  Start();
  const std::string body = R"({"prompt": "a", "max_tokens": 30, "seed": 5, "n": 2})";
  const json first = json::parse(Complete(body).body)["choices"];
  EXPECT_EQ(first, json::parse(Complete(body).body)["choices"]);
  EXPECT_NE(first[0]["text"], first[1]["text"]);
  EXPECT_NE(first,
            json::parse(Complete(R"({"prompt": "a", "max_tokens": 30, "n": 2})").body)["choices"]);
}

}  // namespace
}  // namespace freshet::openai
