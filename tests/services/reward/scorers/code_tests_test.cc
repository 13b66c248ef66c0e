#include "services/reward/scorers/code_tests.h"

#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

CodeReward Reward(const std::string& language = "python") {
  CodeReward reward;
  reward.language = language;
  reward.test_time = absl::Milliseconds(2500);
  return reward;
}

json BodyOf(const std::string& tests, const std::string& language = "python") {
  const auto body = SubmissionBody(Reward(language), tests, "```\nx\n```");
  return body.ok() ? json::parse(*body) : json();
}

TEST(SubmissionBody, TakesInputsAndOutputs) {
  const json wanted = {{{"input", {{"stdin", "1"}}}, {"output", {{"stdout", "2"}}}},
                       {{"input", {{"stdin", ""}}}, {"output", {{"stdout", "3"}}}}};
  json body = BodyOf(R"({"inputs": ["1", ""], "outputs": ["2", "3"]})", "javascript");
  EXPECT_EQ(body["config"]["provided_data"]["test"], wanted);
  EXPECT_EQ(body["config"]["language"], "nodejs");
  EXPECT_EQ(body["config"]["run_timeout"], 2.5);
  EXPECT_EQ(body["completion"], "```\nx\n```");
  body = BodyOf(R"( [{"input": "1", "output": "2"}, {"output": "3"}])");
  EXPECT_EQ(body["config"]["provided_data"]["test"], wanted);
}

TEST(SubmissionBody, TakesAssertions) {
  EXPECT_EQ(BodyOf("assert f(1) == 2")["config"]["provided_data"]["test"]["code"],
            "assert f(1) == 2");
  EXPECT_EQ(BodyOf(R"({"code": "assert f(1) == 2"})")["config"]["provided_data"]["test"]["code"],
            "assert f(1) == 2");
}

TEST(SubmissionBody, RefusesWhatIsNoTest) {
  for (const char* bad : {"", " \n", "{", "[]", "[1]", "[{}]", R"([{"input": 1, "output": "2"}])",
                          R"([{"output": 2}])", "{}", R"({"inputs": ["1"], "outputs": []})",
                          R"({"inputs": [1], "outputs": ["1"]})",
                          R"({"inputs": [], "outputs": []})", R"({"code": 1})"}) {
    const auto body = SubmissionBody(Reward(), bad, "x");
    EXPECT_EQ(body.status().code(), absl::StatusCode::kFailedPrecondition) << bad;
    EXPECT_THAT(std::string(body.status().message()), HasSubstr("the row's tests are")) << bad;
  }
}

constexpr char kHalf[] =
    R"({"accepted": false, "tests": [{"passed": true, "exec_info": {"status": "Success"}},
                                     {"passed": false, "exec_info": {"status": "Failed"}}]})";

TEST(VerdictOf, AllTestsOrTheirFraction) {
  CodeReward reward = Reward();
  EXPECT_EQ(VerdictOf(reward, kHalf)->value, 0);
  EXPECT_THAT(VerdictOf(reward, kHalf)->parts,
              UnorderedElementsAre(Pair("passed", 1), Pair("tests", 2)));
  EXPECT_EQ(VerdictOf(reward, R"({"accepted": true, "tests": [{"passed": true}]})")->value, 1);
  reward.fraction = true;
  EXPECT_EQ(VerdictOf(reward, kHalf)->value, 0.5);
}

TEST(VerdictOf, AnythingElseIsNoReward) {
  for (const char* bad :
       {"", "[]", "null", "{}", R"({"accepted": true})", R"({"accepted": 1, "tests": []})",
        R"({"accepted": true, "tests": []})", R"({"accepted": true, "tests": [{"passed": false}]})",
        R"({"accepted": false, "tests": [{"passed": true}]})",
        "{\"accepted\": true, \"tests\": [\xff]}", R"({"accepted": true, "tests": [1]})",
        R"({"accepted": true, "tests": [{"passed": 1}]})",
        R"({"accepted": false, "tests": [{"passed": false,
            "exec_info": {"status": "SandboxError", "message": "lost"}}]})"}) {
    EXPECT_EQ(VerdictOf(Reward(), bad).status().code(), absl::StatusCode::kInternal) << bad;
  }
}

}  // namespace
}  // namespace freshet
