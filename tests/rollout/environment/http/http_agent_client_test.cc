#include "rollout/environment/http/http_agent_client.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/answering_port.h"

namespace freshet {
namespace {

using testing::HasSubstr;

TEST(ParseAgentAnswer, TakesTheReward) {
  const auto reward = ParseAgentAnswer(200, R"({"reward": -0.5, "truncated": true})");
  ASSERT_TRUE(reward.ok()) << reward.status();
  EXPECT_EQ(reward->reward, -0.5);
  EXPECT_TRUE(reward->truncated);
  EXPECT_FALSE(reward->requests_optional);
  EXPECT_FALSE(ParseAgentAnswer(200, R"({"reward": 1})")->truncated);
  EXPECT_TRUE(
      ParseAgentAnswer(200, R"({"reward": 1, "requests_optional": true})")->requests_optional);
}

TEST(ParseAgentAnswer, AnythingElseIsNoReward) {
  for (const std::string& body :
       {std::string(), std::string("\xff"), std::string("0.5"), std::string("null"),
        std::string("{}"), std::string(R"({"reward": null})"), std::string(R"({"reward": "1"})"),
        std::string(R"({"reward": NaN})"), std::string(R"({"reward": Infinity})"),
        std::string(R"({"reward": 1e999})"), std::string("{\"reward\": 1, \"why\": \"\xff\"}"),
        std::string(R"({"reward": 1} {"reward": 0})"), std::string(R"([{"reward": 1}])"),
        std::string(R"({"reward": 1, "truncated": 1})"),
        std::string(R"({"reward": 1, "requests_optional": null})"), std::string(60'000, '[')}) {
    EXPECT_EQ(ParseAgentAnswer(200, body).status().code(), absl::StatusCode::kInternal)
        << body.substr(0, 60);
  }
}

TEST(ParseAgentAnswer, TheStatusTellsWhoIsToBlame) {
  const auto code = [](int status) { return ParseAgentAnswer(status, "why").status().code(); };
  EXPECT_EQ(code(429), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(504), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(400), absl::StatusCode::kInvalidArgument);
  for (const int status : {0, 204, 302, 404, 500, 503}) {
    EXPECT_EQ(code(status), absl::StatusCode::kUnavailable) << status;
  }
}

// Calls whose Take waits for an event.
class WaitingCalls final : public runtime::HttpCalls {
 public:
  explicit WaitingCalls(std::unique_ptr<runtime::HttpCalls> calls) : calls_(std::move(calls)) {}
  int64_t Start(runtime::HttpCall call) override { return calls_->Start(std::move(call)); }
  void Stop(int64_t call) override { calls_->Stop(call); }
  std::vector<runtime::HttpCallEvent> Take(absl::Duration /*wait*/) override {
    return calls_->Take(absl::Seconds(20));
  }

 private:
  const std::unique_ptr<runtime::HttpCalls> calls_;
};

// The event of an episode that the agent at `address` plays.
AgentEvent Play(const std::string& address, absl::Duration timeout) {
  auto opened = runtime::OpenHttpCalls(address);
  EXPECT_TRUE(opened.ok()) << opened.status();
  HttpAgentClient client(std::make_unique<WaitingCalls>(*std::move(opened)), "/");
  AgentTask task;
  task.timeout = timeout;
  client.Start(7, task);
  std::vector<AgentEvent> events;
  // A Poll without an event has taken a part of the answer. The call's own time-out ends the last.
  for (int parts = 0; events.empty() && parts < 1000; ++parts) events = client.Poll();
  EXPECT_EQ(events.size(), 1U);
  return events.empty() ? AgentEvent{} : events.front();
}

TEST(HttpAgentClient, WhateverAnAgentSendsIsAnAnswerOrANamedFailure) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const AnsweringPort good(ok + "Content-Length: 13\r\n\r\n{\"reward\": 1}");
  const AgentEvent event = Play(good.address(), absl::Seconds(10));
  EXPECT_EQ(event.episode, 7);
  ASSERT_TRUE(event.reward.ok()) << event.reward.status();
  EXPECT_EQ(event.reward->reward, 1);
  const struct {
    std::string answer;
    absl::StatusCode code;
  } cases[] = {
      // A flood does not mean that the agent is full.
      {ok + "\r\n" + std::string(200'000, 'x'), absl::StatusCode::kInternal},
      {ok + "Content-Length: 13\r\n\r\n{\"rew", absl::StatusCode::kUnavailable},
      {"", absl::StatusCode::kUnavailable},
      {ok + "\r\n{\"reward\": NaN}", absl::StatusCode::kInternal},
  };
  for (const auto& [answer, code] : cases) {
    const AnsweringPort port(answer);
    const absl::Status status = Play(port.address(), absl::Seconds(10)).reward.status();
    EXPECT_EQ(status.code(), code) << answer.substr(0, 60) << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the agent"));
  }
  const AnsweringPort silent;
  EXPECT_EQ(Play(silent.address(), absl::Milliseconds(20)).reward.status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace freshet
