#include "services/reward/service/http_scorer.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/str_cat.h"
#include "datastore/memory/in_memory_call_budget.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/scorers/code_tests.h"
#include "services/reward/scorers/judge_question.h"
#include "services/reward/scorers/reward_model_question.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kAccepted[] = R"({"accepted": true, "tests": [{"passed": true}]})";

// Gives one answer after the other, and the last one again and again.
class FakeServer final : public HttpClient {
 public:
  explicit FakeServer(std::vector<absl::StatusOr<HttpReply>> answers)
      : answers_(std::move(answers)) {}
  absl::StatusOr<HttpReply> Send(const HttpCall& call) override {
    calls.push_back(call);
    return answers_[std::min(calls.size(), answers_.size()) - 1];
  }
  std::vector<HttpCall> calls;

 private:
  const std::vector<absl::StatusOr<HttpReply>> answers_;
};

std::unique_ptr<HttpScorer> Make(const std::shared_ptr<FakeServer>& sandbox,
                                 absl::Duration timeout = absl::Seconds(60)) {
  CodeReward reward;
  reward.language = "python";
  reward.tests = "{tests}";
  reward.test_time = absl::Seconds(1);
  return std::make_unique<HttpScorer>("sandbox", sandbox, *CodeQuestion(reward), timeout);
}

absl::StatusOr<ComponentScore> Ask(const HttpScorer& scorer) {
  return ScoreText(scorer, "x", {{"tests", "assert f"}});
}

TEST(HttpScorer, AsksTheServer) {
  const auto sandbox = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{200, kAccepted}});
  EXPECT_EQ(Ask(*Make(sandbox))->value, 1);
  ASSERT_EQ(sandbox->calls.size(), 1);
  EXPECT_EQ(sandbox->calls[0].path, "/submit");
  EXPECT_THAT(sandbox->calls[0].body, HasSubstr("assert f"));
}

TEST(HttpScorer, WaitsForAServerThatIsAwayOrBusy) {
  const auto sandbox = std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{
      absl::UnavailableError("cannot connect"), HttpReply{429, "many"}, HttpReply{504, "lost"},
      HttpReply{200, kAccepted}});
  EXPECT_EQ(Ask(*Make(sandbox))->value, 1);
  EXPECT_EQ(sandbox->calls.size(), 4);
}

TEST(HttpScorer, NoSampleIsToBlameForTheOperatorsFilesAndCertificates) {
  for (const auto code :
       {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kPermissionDenied}) {
    const auto server = std::make_shared<FakeServer>(
        std::vector<absl::StatusOr<HttpReply>>{absl::Status(code, "a certificate has expired")});
    const auto score = Ask(*Make(server, absl::Milliseconds(20)));
    EXPECT_EQ(score.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(score.status()), HasSubstr("a certificate has expired"));
  }
}

TEST(HttpScorer, AProgramThatLosesItsWorkersIsGivenUp) {
  const auto sandbox =
      std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{HttpReply{504, "lost"}});
  EXPECT_EQ(Ask(*Make(sandbox)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(sandbox->calls.size(), 2);
}

TEST(HttpScorer, AServerThatStaysAwayIsNoReward) {
  const auto sandbox =
      std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{HttpReply{503, "away"}});
  const auto score = Ask(*Make(sandbox, absl::Milliseconds(200)));
  EXPECT_EQ(score.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(score.status()), HasSubstr("503: away"));
}

TEST(HttpScorer, ARedirectNamesTheFix) {
  const auto judge =
      std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{HttpReply{307, ""}});
  const auto score = Ask(*Make(judge));
  EXPECT_EQ(score.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(score.status()),
              HasSubstr("status 307: a redirect, which is not followed; give the address"));
}

TEST(HttpScorer, OtherAnswersAreErrors) {
  const auto sandbox = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{422, "bad"}, HttpReply{200, "{}"}});
  const auto scorer = Make(sandbox);
  EXPECT_EQ(Ask(*scorer).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Ask(*scorer).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ScoreText(*scorer, "x", {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sandbox->calls.size(), 2);
}

TEST(HttpScorer, WhateverAServerAnswersNothingIsScoredZero) {
  JudgeReward judge;
  judge.model = "judge";
  judge.text = "{response}";
  CodeReward code;
  code.language = "python";
  code.tests = "{tests}";
  const auto verdict = [](const std::string& score) {
    return R"({"choices": [{"message": {"content": "{\"score\": )" + score + "}\"}}]}";
  };
  const std::string output = R"({"data": [{"data": [0.5]}]})";
  const struct {
    HttpQuestion question;
    std::string good;
    std::vector<std::string> bad;
  } cases[] = {
      {*CodeQuestion(code), kAccepted, {output, verdict("5"), R"({"accepted": NaN, "tests": []})"}},
      {*JudgeQuestion(judge),
       verdict("5"),
       {output, kAccepted, verdict("NaN"), verdict("Infinity"), verdict("1e999"), verdict("11")}},
      {*RewardModelQuestion({"model", ""}),
       output,
       {kAccepted, verdict("5"), R"({"data": [{"data": [NaN]}]})",
        R"({"data": [{"data": [Infinity]}]})", R"({"data": [{"data": [1e999]}]})"}},
  };
  const Attributes row = {{"prompt", "p"}, {"tests", "assert f"}};
  for (const auto& test : cases) {
    const auto score = [&row, &test](absl::StatusOr<HttpReply> reply) {
      const auto server =
          std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{std::move(reply)});
      return ScoreText(HttpScorer("server", server, test.question, absl::Seconds(60)), "x", row);
    };
    const std::string& good = test.good;
    EXPECT_EQ(score(HttpReply{200, good}).status(), absl::OkStatus());
    std::vector<std::string> bodies = test.bad;
    bodies.insert(bodies.end(), {"", "\xff", good + good, "[" + good + "]", good.substr(0, 20),
                                 std::string(1 << 20, '['), std::string("\0", 1)});
    for (const std::string& body : bodies) {
      EXPECT_EQ(score(HttpReply{200, body}).status().code(), absl::StatusCode::kInternal)
          << test.question.path << ": " << body.substr(0, 80);
    }
    for (const absl::Status& status :
         {absl::DataLossError("the reply is larger than 8 MiB"), absl::DeadlineExceededError("")}) {
      EXPECT_EQ(score(status).status().code(), status.code());
    }
  }
}

absl::StatusOr<ComponentScore> AskWithin(int64_t max_calls, CallBudget& budget,
                                         const Scorer& scorer) {
  const Attributes row = {{"tests", "assert f"}};
  ScoreInput input{"x", 0, true, row, absl::Seconds(60)};
  input.calls = {&budget, "judge", max_calls};
  return scorer.Score(input);
}

TEST(HttpScorer, EveryRequestThatIsSentCounts) {
  const auto server = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{504, "lost"}, HttpReply{200, kAccepted}});
  InMemoryCallBudget budget;
  EXPECT_EQ(AskWithin(3, budget, *Make(server))->value, 1);
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 2, 0}}));
  EXPECT_EQ(AskWithin(0, budget, *Make(server))->value, 1) << "no limit";
  EXPECT_EQ(Ask(*Make(server))->value, 1) << "no job";
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 2, 0}}));
}

TEST(HttpScorer, ARequestOfAWrongTokenOrToABusyServerDoesNotCount) {
  for (const int status : {401, 403, 408, 429, 502, 503, 529}) {
    const auto server = std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{
        HttpReply{status, "refused"}, HttpReply{status, "refused"}, HttpReply{200, kAccepted}});
    InMemoryCallBudget budget;
    const auto scorer = Make(server);
    EXPECT_EQ(AskWithin(1, budget, *scorer)->value, 1) << status;
    EXPECT_EQ(AskWithin(1, budget, *scorer).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(server->calls.size(), 3) << status;
  }
}

TEST(HttpScorer, ARequestWithoutALimitGivesNoCallBack) {
  const auto server = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{503, "busy"}, HttpReply{200, kAccepted}});
  InMemoryCallBudget budget;
  const auto scorer = Make(server);
  EXPECT_EQ(AskWithin(0, budget, *scorer)->value, 1);
  EXPECT_EQ(AskWithin(1, budget, *scorer)->value, 1);
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 1, 0}}));
}

TEST(HttpScorer, ARequestThatNoServerGotDoesNotCount) {
  const auto away = NothingSent(absl::UnavailableError("cannot connect"));
  const auto server = std::make_shared<FakeServer>(std::vector<absl::StatusOr<HttpReply>>{
      away, away, HttpReply{422, "bad"}, away, HttpReply{200, kAccepted}});
  InMemoryCallBudget budget;
  const auto scorer = Make(server);
  EXPECT_EQ(AskWithin(2, budget, *scorer).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 1, 0}}));
  EXPECT_EQ(AskWithin(2, budget, *scorer)->value, 1);
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 2, 0}}));
}

TEST(HttpScorer, WithoutACallLeftTheRowWaitsAndNothingIsSent) {
  const auto server = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{200, kAccepted}});
  InMemoryCallBudget budget;
  const auto scorer = Make(server);
  EXPECT_EQ(AskWithin(1, budget, *scorer)->value, 1);
  EXPECT_EQ(AskWithin(1, budget, *scorer).status(),
            absl::UnavailableError("reward.components.judge.max_calls: all 1 calls are used; raise "
                                   "it and resume"));
  EXPECT_EQ(server->calls.size(), 1);
  EXPECT_EQ(AskWithin(2, budget, *scorer)->value, 1);
}

TEST(HttpScorer, ACallThatCannotBeCountedIsNotSent) {
  class AwayBudget final : public CallBudget {
    absl::StatusOr<bool> Spend(const std::string&, int64_t) override {
      return absl::PermissionDeniedError("the password is being changed");
    }
  } budget;
  const auto server = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{200, kAccepted}});
  EXPECT_EQ(AskWithin(1, budget, *Make(server)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(server->calls.empty());
}

TEST(HttpScorer, ACachedScoreCostsNoCall) {
  const auto server = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{200, kAccepted}});
  InMemoryCallBudget budget;
  const CachingScorer scorer("judge", Make(server), std::make_shared<ScoreCache>(10));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(AskWithin(1, budget, scorer)->value, 1);
  EXPECT_EQ(budget.Read(), (std::vector<ComponentCalls>{{"judge", 1, 0}}));
}

TEST(HttpScorers, WithoutAServerTheTypeIsRefused) {
  const auto code = SandboxScorers({}, nullptr), judge = JudgeScorers({}, nullptr);
  ASSERT_TRUE(code.ok() && judge.ok());
  EXPECT_THAT(Message((*code)({}, {}).status()), HasSubstr("no sandbox is offered here"));
  EXPECT_THAT(Message((*judge)({}, {}).status()), HasSubstr("no judge is offered here"));
  const auto model = RewardModelScorers({}, nullptr);
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(Message((*model)({}, {}).status()), HasSubstr("no reward model is offered here"));
  EXPECT_THAT(Message(SandboxScorers({"https://h:1", "", ""}, nullptr).status()),
              HasSubstr("--sandbox"));
}

TEST(HttpScorers, AFileWithoutATokenIsRefusedAtTheStart) {
  const std::string folder = testing::TempDir();
  const std::string roots = folder + "/http_scorers_roots", token = folder + "/http_scorers_token";
  ASSERT_TRUE(WriteFileAtomically(roots, "roots").ok());
  for (const char* text : {"", "\n", "two words\n", "key\nX-Evil: 1\n"}) {
    ASSERT_TRUE(WriteFileAtomically(token, text).ok());
    const std::string error = Message(JudgeScorers({"https://h", roots, token}, nullptr).status());
    EXPECT_THAT(error, HasSubstr("--judge: " + token + " holds no token; want one line")) << text;
    EXPECT_THAT(error, Not(HasSubstr("Evil")));
  }
  ASSERT_TRUE(WriteFileAtomically(token, "key\r\n").ok());
  EXPECT_TRUE(JudgeScorers({"https://h", roots, token}, nullptr).ok());
}

}  // namespace
}  // namespace freshet
