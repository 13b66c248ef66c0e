#ifndef FRESHET_TESTS_ROLLOUT_OPENAI_API_SERVICE_FIXTURE_H_
#define FRESHET_TESTS_ROLLOUT_OPENAI_API_SERVICE_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "rollout/openai/api_service.h"
#include "rollout/openai/generation_loop.h"
#include "tests/rollout/openai/fake_reply.h"
#include "tests/rollout/openai/hooked_tokenizer.h"
#include "tests/rollout/openai/scripted_engine.h"
#include "tests/testing/fake_clock.h"
#include "text/char_tokenizer.h"

namespace freshet::openai {

// The API over an engine whose model counts.
class ApiServiceTest : public testing::Test {
 protected:
  static constexpr absl::Duration kGuard = absl::Seconds(30);
  // After each character comes the next one; id 31 is the end token.
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz01234";
  static constexpr int32_t kEnd = 31;

  ApiServiceTest() {
    options_.model_name = "m";
    options_.model_path = "/models/m";
    options_.model = {ScriptedEngine::kContext, ScriptedEngine::kVocabulary, {kEnd}};
    options_.defaults.temperature = 0;
    options_.sessions = &sessions_;
  }
  ~ApiServiceTest() override {
    if (loop_ != nullptr) loop_->Stop();
  }
  void Start(std::unique_ptr<ScriptedEngine> engine = std::make_unique<ScriptedEngine>()) {
    loop_ = std::make_unique<GenerationLoop>(std::move(engine), loop_options_, clock_);
    service_ = std::make_unique<ApiService>(options_, *tokenizer_, *loop_, clock_);
  }
  // An engine whose polls wait until `gate_` is notified, after the first `free` ones.
  std::unique_ptr<ScriptedEngine> Gated(int free, int64_t max_sequences = 1) {
    auto engine = std::make_unique<ScriptedEngine>(max_sequences);
    engine->on_poll = [this, free, polls = 0]() mutable {
      polling_.Notify();
      if (polls++ >= free) {
        EXPECT_TRUE(gate_.WaitFor(kGuard));
      }
      return absl::OkStatus();
    };
    return engine;
  }
  static runtime::HttpRequest Request(const std::string& path, const std::string& body = "") {
    runtime::HttpRequest request;
    request.path = path;
    request.host = "127.0.0.1:8000";
    request.method = body.empty() ? "GET" : "POST";
    request.headers["content-type"] = "application/json";
    request.body = body;
    return request;
  }
  // A request with the key of a session.
  static runtime::HttpRequest Of(const std::string& key, const std::string& path,
                                 const std::string& body) {
    runtime::HttpRequest request = Request(path, body);
    request.headers["authorization"] = "Bearer " + key;
    return request;
  }
  // Opens a session and returns its key.
  std::string OpenSession(int32_t conversations = 1, int64_t max_tokens = 1000) {
    SessionOptions session;
    session.max_tokens = max_tokens;
    session.max_conversations = conversations;
    session.sampling.temperature = 0;
    session.sampling.max_new_tokens = 250;
    return *sessions_.Open(std::move(session));
  }
  std::shared_ptr<FakeReply> Begin(runtime::HttpRequest request) {
    auto reply = std::make_shared<FakeReply>();
    service_->Handle(std::move(request), reply);
    return reply;
  }
  runtime::HttpResponse Call(runtime::HttpRequest request) {
    const auto reply = Begin(std::move(request));
    EXPECT_TRUE(reply->done.WaitFor(kGuard));
    return reply->response();
  }
  runtime::HttpResponse Complete(const std::string& body) {
    return Call(Request("/v1/completions", body));
  }
  void ExpectError(const runtime::HttpResponse& response, int status, const std::string& part) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.content_type, "application/json");
    const nlohmann::json error = nlohmann::json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], status);
    EXPECT_THAT(error["message"].get<std::string>(), testing::HasSubstr(part));
  }
  // The only parser waits with a prompt until `gate_` is notified.
  std::shared_ptr<FakeReply> BlockParser() {
    options_.parser_threads = 1;
    tokenizer_->on_encode = [this] {
      ++encoded_;
      parsing_.Notify();
      EXPECT_TRUE(gate_.WaitFor(kGuard));
    };
    Start();
    auto reply = Begin(Request("/v1/completions", R"({"prompt": "a"})"));
    EXPECT_TRUE(parsing_.WaitFor(kGuard));
    return reply;
  }
  static std::string Header(const runtime::HttpResponse& response, const std::string& name) {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }
  static std::unique_ptr<Tokenizer> ChatTokenizer() {
    std::vector<TokenizerFile> files = (*CreateCharTokenizer(kAlphabet))->Files();
    files.push_back({"chat_template.jinja",
                     "{% for m in messages %}{{ m.content }}{% endfor %}"
                     "{% if add_generation_prompt %}a{% endif %}"});
    return *ParseTokenizer(std::move(files), "test");
  }
  // Waits for the loop to end everything.
  void ExpectNothingHeld() {
    EXPECT_TRUE(loop_->Drain(kGuard));
    const QueueStats stats = loop_->stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.engine.cache_blocks_free, stats.engine.cache_blocks);
  }

  ApiServiceOptions options_;
  GenerationQueueOptions loop_options_;
  FakeClock clock_;
  Notification polling_;
  Notification parsing_;
  Notification gate_;
  std::atomic<int> encoded_ = 0;
  const std::unique_ptr<HookedTokenizer> tokenizer_ =
      std::make_unique<HookedTokenizer>(ChatTokenizer());
  SessionRegistry sessions_{*tokenizer_, 8};
  std::unique_ptr<GenerationLoop> loop_;
  std::unique_ptr<ApiService> service_;
};

}  // namespace freshet::openai

#endif  // FRESHET_TESTS_ROLLOUT_OPENAI_API_SERVICE_FIXTURE_H_
