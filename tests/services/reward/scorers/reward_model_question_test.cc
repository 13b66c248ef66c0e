#include "services/reward/scorers/reward_model_question.h"

#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using nlohmann::json;
using testing::StartsWith;

json BodyOf(const RewardModel& reward, const Attributes& row) {
  const auto bodies = RewardModelQuestion(reward)->bodies({"four \xFF", 3, true, row});
  EXPECT_TRUE(bodies.ok()) << bodies.status();
  return bodies.ok() ? json::parse(bodies->at(0)) : json();
}

absl::StatusOr<ComponentScore> Answers(const std::string& answer) {
  return RewardModelQuestion({"rm", ""})->verdict({answer});
}

TEST(RewardModelQuestion, ShowsTheConversation) {
  const json body = BodyOf({"rm", ""}, {{"prompt", "2+2?"}});
  EXPECT_EQ(body["model"], "rm");
  EXPECT_EQ(body["task"], "classify");
  EXPECT_EQ(body["use_activation"], false);
  EXPECT_EQ(body["messages"], json::parse(R"([{"role": "user", "content": "2+2?"},
                                              {"role": "assistant", "content": "four ?"}])"));
}

TEST(RewardModelQuestion, ARowsMessagesStayWhatTheyAre) {
  const json body = BodyOf({"rm", ""}, {{"prompt", R"({"messages": [
      {"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]})"}});
  ASSERT_EQ(body["messages"].size(), 3);
  EXPECT_EQ(body["messages"][0]["role"], "system");
  EXPECT_EQ(body["messages"][2]["role"], "assistant");
  for (const char* text : {"[]", "{}", R"({"messages": []})", R"({"messages": [1]})",
                           R"({"messages": [{}]})", R"({"messages": 1})", "{"}) {
    EXPECT_EQ(BodyOf({"rm", ""}, {{"prompt", text}})["messages"][0]["content"], text);
  }
}

TEST(RewardModelQuestion, ATextIsShownAsItIs) {
  const json body = BodyOf({"rm", "{prompt} -> {response}"}, {{"prompt", "2+2?"}});
  EXPECT_EQ(body["input"], "2+2? -> four ?");
  EXPECT_FALSE(body.contains("messages"));
  EXPECT_THAT(Message(RewardModelQuestion({"rm", "{prompt}"}).status()),
              StartsWith("text does not contain {response}"));
}

TEST(RewardModelQuestion, TheOutputIsTheReward) {
  EXPECT_EQ(Answers(R"({"object": "list", "data": [{"index": 0, "data": [-3.5]}]})")->value, -3.5);
}

TEST(RewardModelQuestion, AnythingElseIsNoReward) {
  for (const char* answer :
       {"", "[]", "{}", R"({"data": []})", R"({"data": [1]})", R"({"data": [{"data": 1}]})",
        R"({"data": [{"data": []}]})", R"({"data": [{"data": [1, 2]}]})",
        R"({"data": [{"data": [[1]]}]})", R"({"data": [{"data": ["1"]}]})",
        R"({"data": [{"data": [null]}]})", R"({"data": [{"data": [1]}, {"data": [1]}]})",
        R"({"data": [{"data": [1e999]}]})"}) {
    EXPECT_EQ(Answers(answer).status().code(), absl::StatusCode::kInternal) << answer;
  }
}

TEST(RewardModelQuestion, ARowWithoutAPromptIsTheRowsFault) {
  EXPECT_EQ(RewardModelQuestion({"rm", ""})->bodies({"x", 1, true, {}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace freshet
