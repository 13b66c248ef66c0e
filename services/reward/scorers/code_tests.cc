#include "services/reward/scorers/code_tests.h"

#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/text_template.h"
#include "base/utf8.h"

namespace freshet {
namespace {

using nlohmann::json;

json Test(const json& input, const json& output) {
  return {{"input", {{"stdin", input}}}, {"output", {{"stdout", output}}}};
}

bool AllTexts(const json& list) {
  for (const json& value : list) {
    if (!value.is_string()) return false;
  }
  return true;
}

absl::Status BadTests(const char* what) {
  return FailedPrecondition("the row's tests are ", what,
                            R"(; want {"inputs": [...], "outputs": [...]}, a list of )",
                            R"({"input": ..., "output": ...}, or code with assertions)");
}

// Tests in the form of SandboxFusion.
absl::StatusOr<json> ReadTests(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return BadTests("empty");
  if (text[begin] != '{' && text[begin] != '[') return json{{"code", text}};
  absl::StatusOr<json> parsed = ParseJson(text, "tests");
  if (!parsed.ok()) return BadTests("not JSON");
  const json& tests = *parsed;
  if (tests.is_object() && tests.contains("code") && tests["code"].is_string()) {
    return json{{"code", tests["code"]}};
  }
  json list = json::array();
  if (tests.is_object() && tests.contains("inputs") && tests.contains("outputs")) {
    const json &inputs = tests["inputs"], &outputs = tests["outputs"];
    if (!inputs.is_array() || !outputs.is_array() || inputs.size() != outputs.size() ||
        !AllTexts(inputs) || !AllTexts(outputs)) {
      return BadTests("not as many inputs as outputs, all of them texts");
    }
    for (size_t i = 0; i < inputs.size(); ++i) list.push_back(Test(inputs[i], outputs[i]));
  } else if (tests.is_array()) {
    for (const json& test : tests) {
      if (!test.is_object() || !test.contains("output") || !test["output"].is_string() ||
          !test.value("input", json("")).is_string()) {
        return BadTests("a list of something else");
      }
      list.push_back(Test(test.value("input", json("")), test["output"]));
    }
  } else {
    return BadTests("an object of something else");
  }
  if (list.empty()) return BadTests("none");
  return list;
}

absl::Status BadAnswer(std::string_view answer) {
  return Internal("the sandbox gives no verdict, but: ",
                  ValidUtf8(std::string(answer.substr(0, 200))));
}

}  // namespace

absl::StatusOr<std::string> SubmissionBody(const CodeReward& reward, std::string_view tests,
                                           std::string_view completion) {
  FRESHET_ASSIGN_OR_RETURN(json test, ReadTests(tests));
  const double seconds = absl::ToDoubleSeconds(reward.test_time);
  const json body = {
      {"dataset", "freshet"},
      {"id", 0},
      {"completion", ValidUtf8(std::string(completion))},
      {"config",
       {{"dataset_type", test.is_array() ? "CommonOJDataset" : "AutoEvalDataset"},
        {"language", reward.language == "javascript" ? "nodejs" : reward.language},
        {"compile_timeout", 30},
        {"run_timeout", seconds},
        {"provided_data",
         {{"id", 0}, {"content", ""}, {"labels", json::object()}, {"test", std::move(test)}}},
        {"extra", json::object()}}}};
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<ComponentScore> VerdictOf(const CodeReward& reward, std::string_view answer) {
  const absl::StatusOr<json> parsed = ParseJson(answer, "answer");
  if (!parsed.ok() || !parsed->is_object() || !parsed->value("accepted", json()).is_boolean() ||
      !parsed->value("tests", json()).is_array()) {
    return BadAnswer(answer);
  }
  const json& tests = (*parsed)["tests"];
  int64_t passed = 0;
  for (const json& test : tests) {
    if (!test.is_object() || !test.value("passed", json()).is_boolean()) return BadAnswer(answer);
    const json run = test.value("exec_info", json());
    if (run.is_object() && run.value("status", json()) == "SandboxError") {
      return Internal("the sandbox failed: ", run.value("message", json()).dump().substr(0, 200));
    }
    passed += test["passed"].get<bool>() ? 1 : 0;
  }
  const bool accepted = (*parsed)["accepted"].get<bool>();
  const bool all = !tests.empty() && passed == std::ssize(tests);
  if (accepted != all) return BadAnswer(answer);
  const double count = static_cast<double>(tests.size());
  ComponentScore score;
  score.value = accepted ? 1 : 0;
  if (reward.fraction && count > 0) score.value = static_cast<double>(passed) / count;
  score.parts = {{"passed", static_cast<double>(passed)}, {"tests", count}};
  return score;
}

absl::StatusOr<HttpQuestion> CodeQuestion(CodeReward reward) {
  absl::StatusOr<TextTemplate> tests = TextTemplate::Parse(reward.tests);
  if (!tests.ok()) return InvalidArgument("text: ", Message(tests.status()));
  HttpQuestion question;
  question.path = "/submit";
  question.bodies = [reward, tests = *std::move(tests)](
                        const ScoreInput& input) -> absl::StatusOr<std::vector<std::string>> {
    const absl::StatusOr<std::string> text = tests.Render(input.attributes);
    if (!text.ok()) return FailedPrecondition(Message(text.status()), " in the row");
    FRESHET_ASSIGN_OR_RETURN(std::string body, SubmissionBody(reward, *text, input.completion));
    return std::vector{std::move(body)};
  };
  question.verdict = [reward](const std::vector<std::string>& answers) {
    return VerdictOf(reward, answers.front());
  };
  return question;
}

}  // namespace freshet
