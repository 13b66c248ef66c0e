#include "services/sandbox/service/submission.h"

#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using v1::CommandResult;

TEST(ExtractCode, TakesTheLastCompleteBlockOfTheLanguage) {
  const auto extract = [](const std::string& text) { return ExtractCode(text, "python"); };
  EXPECT_EQ(extract("Here:\n```python\na = 1\n```\nor\n```py\nb = 2\n```\n").text, "b = 2\n");
  EXPECT_EQ(extract("```cpp\nint x;\n```\n```python\na\n```").text, "a\n");
  EXPECT_STREQ(extract("```\nx\n```").type, "fenced");
  EXPECT_EQ(extract("```python\na\n```\n```python\nb").text, "a\n") << "a complete one";
  EXPECT_STREQ(extract("```python\na").type, "incomplete_fenced");
  EXPECT_EQ(extract("```python\na").text, "a\n");
  EXPECT_STREQ(extract("print(1)").type, "heuristic");
  EXPECT_EQ(extract("print(1)").text, "print(1)");
  EXPECT_STREQ(extract("```cpp\nint x;\n```").type, "heuristic");
  EXPECT_STREQ(extract(" \n").type, "empty");
}

TEST(SameOutput, IgnoresWhiteSpaceAtTheEndsOfLines) {
  EXPECT_TRUE(SameOutput("1 2 \r\n3\n\n", "1 2\n3"));
  EXPECT_TRUE(SameOutput("", "\n \n"));
  EXPECT_FALSE(SameOutput(" 1", "1"));
  EXPECT_FALSE(SameOutput("1\n\n2", "1\n2"));
  EXPECT_FALSE(SameOutput("1 2", "1  2"));
}

std::string Body(const std::string& completion, const std::string& test,
                 const std::string& language = "python") {
  const nlohmann::json body = {
      {"dataset", "x"},
      {"id", 7},
      {"completion", completion},
      {"config",
       {{"language", language}, {"provided_data", {{"test", nlohmann::json::parse(test)}}}}}};
  return body.dump();
}

TEST(ParseSubmission, TakesInputsAndKeepsTheOutputs) {
  const auto submission = ParseSubmission(
      Body(
          "```python\nx\n```",
          R"([{"input": {"stdin": "1"}, "output": {"stdout": "2"}}, {"output": {"stdout": "3"}}])"),
      "nonce");
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_THAT(submission->program.inputs(), ElementsAre("1", ""));
  EXPECT_THAT(submission->outputs, ElementsAre("2", "3"));
  EXPECT_EQ(submission->program.code(), "x\n");
  EXPECT_THAT(submission->program.DebugString(), testing::Not(HasSubstr("3")));
}

TEST(ParseSubmission, PutsAssertionsBehindTheProgram) {
  const auto submission = ParseSubmission(Body("f", R"({"code": "assert f"})"), "12-34");
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->program.code(), "f\n\nassert f\nprint('\\n12-34')\n");
  v1::Outcome outcome;
  CommandResult& run = *outcome.add_runs();
  run.set_end(CommandResult::END_EXITED);
  run.set_standard_output("text\n12-34\n");
  EXPECT_TRUE(Passed(*submission, outcome, 0));
  run.set_standard_output("text\n");
  EXPECT_FALSE(Passed(*submission, outcome, 0)) << "it has ended before the assertions";
  run.set_standard_output("text\n12-34\n");
  run.set_exit_code(1);
  EXPECT_FALSE(Passed(*submission, outcome, 0));
}

TEST(ParseSubmission, RefusesBadRequestsByTheirField) {
  const auto error = [](const std::string& body) {
    return std::string(ParseSubmission(body, "n").status().message());
  };
  EXPECT_THAT(error("1"), HasSubstr("not an object"));
  EXPECT_THAT(error(R"({"completion": "x", "config": {}})"), HasSubstr("provided_data.test"));
  EXPECT_THAT(error(R"({"config": {"provided_data": {"test": []}}})"), HasSubstr("completion"));
  EXPECT_THAT(error(Body("x", "[]")), HasSubstr("1 to 200 tests"));
  EXPECT_THAT(error(Body("x", "[{}]")), HasSubstr("without output.stdout"));
  EXPECT_THAT(error(Body("x", R"([{"input": {"stdin": 1}, "output": {"stdout": ""}}])")),
              HasSubstr("input.stdin is not text"));
}

TEST(SubmissionJson, IsAcceptedIfAllTestsPass) {
  auto submission = ParseSubmission(
      Body("x", R"([{"output": {"stdout": "2"}}, {"output": {"stdout": "3"}}])"), "n");
  ASSERT_TRUE(submission.ok());
  v1::Outcome outcome;
  for (const char* output : {"2", "3\n"}) {
    CommandResult& run = *outcome.add_runs();
    run.set_end(CommandResult::END_EXITED);
    run.set_standard_output(output);
  }
  EXPECT_EQ(SubmissionJson(*submission, outcome)["accepted"], true);
  EXPECT_EQ(SubmissionJson(*submission, outcome)["id"], 7);
  outcome.mutable_runs(1)->set_end(CommandResult::END_TIME_LIMIT);
  const auto answer = SubmissionJson(*submission, outcome);
  EXPECT_EQ(answer["accepted"], false);
  EXPECT_EQ(answer["tests"][0]["passed"], true);
  EXPECT_EQ(answer["tests"][1]["passed"], false);
}

}  // namespace
}  // namespace freshet::sandbox
