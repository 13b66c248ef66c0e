#include "services/sandbox/service/run_request.h"

#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using testing::HasSubstr;
using v1::CommandResult;

TEST(ParseRunRequest, ReadsWhatSandboxFusionsClientSends) {
  const auto program = ParseRunRequest(
      R"json({"compile_timeout": 10, "run_timeout": 2.5, "code": "print(1)", "stdin": null,
              "language": "javascript", "files": {"a.txt": "aGk=", "b": null},
              "fetch_files": ["c"]})json");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->language(), "nodejs");
  EXPECT_EQ(program->code(), "print(1)");
  EXPECT_EQ(program->compile_ms(), 10'000);
  EXPECT_EQ(program->run_ms(), 2'500);
  ASSERT_EQ(program->inputs_size(), 1);
  EXPECT_EQ(program->inputs(0), "");
  EXPECT_EQ(program->files().at("a.txt"), "hi");
  EXPECT_EQ(program->fetch_files(0), "c");
}

TEST(ParseRunRequest, RefusesBadRequestsByTheirField) {
  const auto error = [](const std::string& body) {
    return std::string(ParseRunRequest(body).status().message());
  };
  EXPECT_THAT(error("[]"), HasSubstr("not an object"));
  EXPECT_THAT(error("{"), HasSubstr("request"));
  EXPECT_THAT(error(R"({"language": "python"})"), HasSubstr("code is missing"));
  EXPECT_THAT(error(R"({"code": "x"})"), HasSubstr("language is missing"));
  const std::string good = R"("language": "python", "code": "x")";
  EXPECT_THAT(error(StrCat("{", good, R"(, "run_timeout": 0})")), HasSubstr("run_timeout is 0"));
  EXPECT_THAT(error(StrCat("{", good, R"(, "run_timeout": 1e9})")), HasSubstr("run_timeout is"));
  EXPECT_THAT(error(StrCat("{", good, R"(, "compile_timeout": "5"})")),
              HasSubstr("compile_timeout is"));
  EXPECT_THAT(error(StrCat("{", good, R"(, "files": {"a": "%"}})")), HasSubstr("not base64"));
  EXPECT_THAT(error(StrCat("{", good, R"(, "files": []})")), HasSubstr("files is not an object"));
  EXPECT_THAT(error(StrCat("{", good, R"(, "fetch_files": [1]})")), HasSubstr("no path"));
}

v1::Outcome OutcomeOf(CommandResult::End end, int exit_code, const std::string& output = "") {
  v1::Outcome outcome;
  CommandResult& run = *outcome.add_runs();
  run.set_end(end);
  run.set_exit_code(exit_code);
  run.set_standard_output(output);
  return outcome;
}

TEST(RunJson, SaysHowAProgramEnded) {
  auto answer = RunJson(OutcomeOf(CommandResult::END_EXITED, 0, "a\xFF"), 0);
  EXPECT_EQ(answer["status"], "Success");
  EXPECT_EQ(answer["run_result"]["status"], "Finished");
  EXPECT_EQ(answer["run_result"]["stdout"], "a?");
  EXPECT_TRUE(answer["compile_result"].is_null());
  answer = RunJson(OutcomeOf(CommandResult::END_EXITED, -11), 0);
  EXPECT_EQ(answer["status"], "Failed");
  EXPECT_EQ(answer["run_result"]["return_code"], -11);
  answer = RunJson(OutcomeOf(CommandResult::END_TIME_LIMIT, 0), 0);
  EXPECT_EQ(answer["status"], "Failed");
  EXPECT_EQ(answer["run_result"]["status"], "TimeLimitExceeded");
  EXPECT_TRUE(answer["run_result"]["return_code"].is_null());
  answer = RunJson(OutcomeOf(CommandResult::END_MEMORY_LIMIT, 0), 0);
  EXPECT_EQ(answer["run_result"]["return_code"], -9);
  EXPECT_EQ(answer["message"], "ended by the limit of memory");
}

TEST(RunJson, ACompilationThatFailsIsNoRun) {
  v1::Outcome outcome;
  outcome.mutable_compilation()->set_end(CommandResult::END_EXITED);
  outcome.mutable_compilation()->set_exit_code(1);
  const auto answer = RunJson(outcome, 0);
  EXPECT_EQ(answer["status"], "Failed");
  EXPECT_EQ(answer["compile_result"]["return_code"], 1);
  EXPECT_TRUE(answer["run_result"].is_null());
}

}  // namespace
}  // namespace freshet::sandbox
