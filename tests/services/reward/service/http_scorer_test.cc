#include "services/reward/service/http_scorer.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/scorers/code_tests.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using testing::HasSubstr;

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

TEST(HttpScorer, OtherAnswersAreErrors) {
  const auto sandbox = std::make_shared<FakeServer>(
      std::vector<absl::StatusOr<HttpReply>>{HttpReply{422, "bad"}, HttpReply{200, "{}"}});
  const auto scorer = Make(sandbox);
  EXPECT_EQ(Ask(*scorer).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Ask(*scorer).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ScoreText(*scorer, "x", {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sandbox->calls.size(), 2);
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

}  // namespace
}  // namespace freshet
