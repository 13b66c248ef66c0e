#include "services/reward/scorers/judge_question.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

JudgeReward Scored() {
  JudgeReward reward;
  reward.model = "judge-8b";
  reward.text = "Task: {prompt}\nResponse: {response}";
  return reward;
}

JudgeReward WithCriteria() {
  JudgeReward reward = Scored();
  reward.criteria = {{"polite", "thanks the reader"}, {"brief", "is one sentence"}};
  return reward;
}

json BodyOf(const JudgeReward& reward, const std::string& completion) {
  const Attributes row = {{"prompt", "say {response}"}};
  const auto bodies = JudgeQuestion(reward)->bodies({completion, 3, true, row, absl::Seconds(1)});
  EXPECT_TRUE(bodies.ok()) << bodies.status();
  return bodies.ok() && bodies->size() == 1 ? json::parse(bodies->front()) : json();
}

// The answer of a server whose model says `content`.
std::string Answer(const std::string& content, const std::string& finish = "stop") {
  const json message = {{"role", "assistant"}, {"content", content}};
  const json choice = {{"index", 0}, {"message", message}, {"finish_reason", finish}};
  return json{{"choices", json::array({choice})}}.dump();
}

absl::StatusOr<ComponentScore> Says(const JudgeReward& reward, const std::string& content) {
  return JudgeQuestion(reward)->verdict({Answer(content)});
}

TEST(JudgeQuestion, ShowsTheModelTaskAndResponse) {
  const json body = BodyOf(Scored(), "hi {prompt} \xFF");
  EXPECT_EQ(body["model"], "judge-8b");
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["max_tokens"], 1024);
  ASSERT_EQ(body["messages"].size(), 2);
  EXPECT_EQ(body["messages"][1]["role"], "user");
  EXPECT_EQ(body["messages"][1]["content"], "Task: say {response}\nResponse: hi {prompt} ?")
      << "inserted text is not expanded again";
  EXPECT_THAT(body["messages"][0]["content"].get<std::string>(),
              HasSubstr("score: an integer from 0 (worst) to 10 (best)"));
}

TEST(JudgeQuestion, AsksForTheVerdictsSchema) {
  JudgeReward reward = WithCriteria();
  const Attributes row = {{"prompt", "p"}};
  const auto text = JudgeQuestion(reward)->bodies({"x", 1, true, row, absl::Seconds(1)});
  ASSERT_TRUE(text.ok());
  const auto body = nlohmann::ordered_json::parse(text->front());
  const auto& schema = body["response_format"]["json_schema"]["schema"];
  EXPECT_EQ(schema["required"].dump(), R"(["reason","brief","polite"])")
      << "the reason comes first";
  EXPECT_EQ(schema["properties"]["polite"]["type"], "boolean");
  EXPECT_THAT(body["messages"][0]["content"].get<std::string>(),
              HasSubstr("- polite: true or false: thanks the reader"));
  reward.structured = false;
  EXPECT_FALSE(BodyOf(reward, "x").contains("response_format"));
}

TEST(JudgeQuestion, TakesTheScore) {
  EXPECT_EQ(Says(Scored(), R"({"reason": "fine", "score": 7})")->value, 0.7);
  EXPECT_EQ(Says(Scored(), "Here:\n```json\n{\"score\": 0}\n```")->value, 0);
  EXPECT_EQ(Says(Scored(), R"(It wrote {x} and {"score": 9}. {"reason": "}{", "score": 3})")->value,
            0.3)
      << "what it quotes is no verdict";
  EXPECT_EQ(Says(Scored(), R"({"score": 9}</think>{"score": 2} as asked)")->value, 0.2);
  JudgeReward five = Scored();
  five.max_score = 5;
  EXPECT_EQ(Says(five, R"({"score": 5})")->value, 1);
}

TEST(JudgeQuestion, TakesTheFractionOfTheCriteria) {
  const auto score = Says(WithCriteria(), R"({"reason": "", "brief": true, "polite": false})");
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0.5);
  EXPECT_THAT(score->parts, UnorderedElementsAre(Pair("brief", 1), Pair("polite", 0)));
}

TEST(JudgeQuestion, AnUnreadableVerdictIsNoReward) {
  for (const char* content :
       {"", "7", "}{", "{", R"({"score": "7"})", R"({"score": 7.5})", R"({"score": 11})",
        R"({"score": -1})", R"({"score": null})", R"({"reason": "x"})", R"([{"score": 7}, {}])"}) {
    EXPECT_EQ(Says(Scored(), content).status().code(), absl::StatusCode::kInternal) << content;
  }
  for (const char* content : {R"({"brief": true})", R"({"brief": true, "polite": 1})"}) {
    EXPECT_EQ(Says(WithCriteria(), content).status().code(), absl::StatusCode::kInternal)
        << content;
  }
  const HttpQuestion question = *JudgeQuestion(Scored());
  for (const char* answer :
       {"", "[]", "{}", R"({"choices": []})", R"({"choices": [1]})", R"({"choices": [{}]})",
        R"({"choices": [{"message": 1}]})", R"({"choices": [{"message": {"content": null}}]})",
        R"({"choices": [{"message": {"refusal": "no"}}]})"}) {
    EXPECT_EQ(question.verdict({answer}).status().code(), absl::StatusCode::kInternal) << answer;
  }
  EXPECT_THAT(Message(question.verdict({Answer(R"({"score": 7})", "length")}).status()),
              HasSubstr("cut by max_answer_tokens"));
}

JudgeReward Pairwise() {
  JudgeReward reward = Scored();
  reward.text = "First: {response}\nSecond: {other}";
  reward.pairwise = true;
  return reward;
}

std::vector<std::string> UserTexts(const JudgeReward& reward, const std::vector<std::string>& group,
                                   int32_t index) {
  const Attributes row = {{"prompt", "p"}};
  const std::string response = group.empty() ? "alone" : group[static_cast<size_t>(index)];
  ScoreInput input{response, 3, true, row};
  input.group = group;
  input.index = index;
  const auto bodies = JudgeQuestion(reward)->bodies(input);
  EXPECT_TRUE(bodies.ok()) << bodies.status();
  std::vector<std::string> texts;
  for (const std::string& body : *bodies) {
    texts.push_back(json::parse(body)["messages"][1]["content"]);
  }
  return texts;
}

TEST(JudgeQuestion, APairwiseJudgeSeesEachOtherResponseOfTheGroup) {
  EXPECT_THAT(UserTexts(Pairwise(), {"a", "b", "c"}, 1),
              ElementsAre("First: b\nSecond: a", "First: b\nSecond: c"));
  EXPECT_THAT(UserTexts(Pairwise(), {}, 0), IsEmpty());
}

TEST(JudgeQuestion, TheValueOfAPairwiseJudgeIsTheFractionWon) {
  const HttpQuestion question = *JudgeQuestion(Pairwise());
  const std::string first = Answer(R"({"better": "first"})");
  const std::string second = Answer(R"({"better": "second"})");
  const std::string tie = Answer(R"({"better": "tie"})");
  EXPECT_EQ(question.verdict({first, second, tie, tie})->value, 0.5);
  EXPECT_EQ(question.verdict({first, first, tie, first})->value, 0.875);
  EXPECT_EQ(question.verdict({})->value, 0.5) << "an evaluation has one sample per row";
  EXPECT_EQ(question.verdict({first, Answer(R"({"better": "both"})")}).status().code(),
            absl::StatusCode::kInternal)
      << "no comparison counts if one is unreadable";
}

TEST(JudgeQuestion, ATaskMayShowTheOthersOfTheGroup) {
  JudgeReward reward = Scored();
  reward.text = "{response} among\n{others}";
  EXPECT_THAT(UserTexts(reward, {"a", "b", "c"}, 2), ElementsAre("c among\n[1] a\n\n[2] b"));
}

TEST(JudgeQuestion, ARowWithoutAFieldIsTheRowsFault) {
  const Attributes none;
  EXPECT_EQ(JudgeQuestion(Scored())->bodies({"x", 1, true, none, absl::Seconds(1)}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JudgeQuestion, RefusesATaskWithoutTheResponse) {
  JudgeReward reward = Scored();
  reward.text = "{prompt} {{response}}";
  EXPECT_THAT(Message(JudgeQuestion(reward).status()), StartsWith("text does not contain"));
  reward = WithCriteria();
  reward.criteria["reason"] = "x";
  EXPECT_THAT(Message(JudgeQuestion(reward).status()), StartsWith("criteria.reason"));
  reward = Scored();
  reward.pairwise = true;
  EXPECT_THAT(Message(JudgeQuestion(reward).status()), HasSubstr("does not contain {other}"));
  reward = Pairwise();
  reward.pairwise = false;
  EXPECT_THAT(Message(JudgeQuestion(reward).status()), HasSubstr("needs pairwise: true"));
}

}  // namespace
}  // namespace freshet
