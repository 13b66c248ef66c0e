#include "env_workers/calculator.h"

#include <set>
#include <string>

#include "env_workers/integer_expression.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

EnvironmentReply MustReset(Calculator& calculator, const EnvironmentOptions& options,
                           uint64_t seed = 1) {
  const auto reply = calculator.Reset(seed, options);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return *reply;
}

EnvironmentReply MustStep(Calculator& calculator, const std::string& action) {
  const auto reply = calculator.Step(action);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return *reply;
}

const EnvironmentOptions kPrompt = {{"source", "prompt"}, {"prompt", "12*34="}};

TEST(Calculator, AnswersAToolCallAndRewardsTheFinalAnswer) {
  Calculator calculator;
  EXPECT_EQ(MustReset(calculator, kPrompt).observation, "");
  const EnvironmentReply call = MustStep(calculator, "[12*34]");
  EXPECT_EQ(call.observation, "408=");
  EXPECT_EQ(call.reward, 0.0);
  EXPECT_FALSE(call.terminated);
  const EnvironmentReply answer = MustStep(calculator, "408");
  EXPECT_EQ(answer.reward, 1.0);
  EXPECT_TRUE(answer.terminated);
}

TEST(Calculator, AFinalAnswerNeedsNoToolCall) {
  struct Case {
    const char* action;
    double reward;
  };
  for (const Case& c :
       {Case{"408", 1}, Case{" 0408\n", 1}, Case{"409", 0}, Case{"", 0}, Case{"-408", 0},
        Case{"408.", 0}, Case{"it is 408", 0}, Case{"[408", 0}, Case{"408]x", 0}, Case{"]", 0}}) {
    Calculator calculator;
    MustReset(calculator, kPrompt);
    const EnvironmentReply reply = MustStep(calculator, c.action);
    EXPECT_EQ(reply.reward, c.reward) << c.action;
    EXPECT_TRUE(reply.terminated) << c.action;
  }
}

TEST(Calculator, ACallMayFollowOtherText) {
  Calculator calculator;
  MustReset(calculator, kPrompt);
  EXPECT_EQ(MustStep(calculator, "[1+1] no: [2+2] ").observation, "4=");
}

TEST(Calculator, TellsThatACallIsNotUnderstood) {
  Calculator calculator;
  EnvironmentOptions options = kPrompt;
  options["calls"] = "64";
  MustReset(calculator, options);
  for (const std::string& action :
       {std::string("[]"), std::string("[1/0]"), std::string("[[1]"),
        std::string("[99999999999999999999]"), "[" + std::string(1 << 20, '9') + "]",
        std::string("[\0]", 3), std::string("[1+]")}) {
    const EnvironmentReply reply = MustStep(calculator, action);
    EXPECT_EQ(reply.observation, action == "[[1]" ? "1=" : "!=");
    EXPECT_EQ(reply.invalid, action != "[[1]");
    EXPECT_FALSE(reply.terminated);
  }
}

TEST(Calculator, OneCallTooManyTruncates) {
  Calculator calculator;
  EnvironmentOptions options = kPrompt;
  options["calls"] = "1";
  MustReset(calculator, options);
  EXPECT_FALSE(MustStep(calculator, "[1]").truncated);
  const EnvironmentReply second = MustStep(calculator, "[1]");
  EXPECT_TRUE(second.truncated);
  EXPECT_EQ(second.reward, 0.0);
}

TEST(Calculator, DrawsTheExpressionFromTheSeed) {
  std::set<std::string> drawn;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Calculator one, another;
    const EnvironmentOptions options = {{"digits", "2"}, {"operands", "3"}, {"operators", "+-"}};
    const EnvironmentReply reply = MustReset(one, options, seed);
    EXPECT_EQ(MustReset(another, options, seed).observation, reply.observation);
    drawn.insert(reply.observation);
    ASSERT_EQ(reply.observation.size(), 9U) << reply.observation;  // "dd+dd-dd="
    ASSERT_EQ(reply.observation.back(), '=');
    EXPECT_EQ(reply.observation.find('*'), std::string::npos);
    for (const size_t first : {0U, 3U, 6U}) {
      EXPECT_NE(reply.observation[first], '0') << reply.observation;
    }
    const auto value = EvaluateExpression(reply.observation.substr(0, 8));
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(MustStep(one, std::to_string(*value)).reward, 1.0);
  }
  EXPECT_GT(drawn.size(), 290U);
}

TEST(Calculator, NamesABadOption) {
  for (const EnvironmentOptions& options : {EnvironmentOptions{{"digits", "0"}},
                                            {{"digits", "10"}},
                                            {{"operands", "1"}},
                                            {{"operands", "9"}},
                                            {{"operators", ""}},
                                            {{"operators", "+/"}},
                                            {{"calls", "65"}},
                                            {{"source", "file"}}}) {
    const auto reply = Calculator().Reset(0, options);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(reply.status().message().find(options.begin()->first), absl::string_view::npos)
        << reply.status();
  }
}

TEST(Calculator, RefusesARowWithoutAnExpression) {
  for (const char* prompt : {"", "=", "what is 1+1?", "1/2="}) {
    EXPECT_EQ(Calculator().Reset(0, {{"source", "prompt"}, {"prompt", prompt}}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Calculator, TheLargestDrawnExpressionHasAValue) {
  // 8 operands of 9 digits can overflow 64 bits; then the reset must fail.
  int refused = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto reply =
        Calculator().Reset(seed, {{"digits", "9"}, {"operands", "8"}, {"operators", "*"}});
    refused += reply.ok() ? 0 : 1;
  }
  EXPECT_EQ(refused, 50);
}

}  // namespace
}  // namespace freshet
