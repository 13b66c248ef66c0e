#include "services/sandbox/service/submission.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "services/sandbox/service/run_request.h"
#include "services/sandbox/worker/succeeded.h"

namespace freshet::sandbox {

using nlohmann::json;

namespace {

constexpr std::string_view kFence = "```";
constexpr size_t kMaxShownBytes = 4096;  // of each output, in the answer

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// A fenced block: its language, and its text up to the closing fence.
struct Block {
  std::string language;
  std::string text;
  bool complete = false;
};

std::vector<Block> Blocks(std::string_view text) {
  std::vector<Block> blocks;
  Block* open = nullptr;
  for (const std::string_view line : SplitLines(text)) {
    const std::string_view stripped = Stripped(line);
    if (!stripped.starts_with(kFence)) {
      if (open != nullptr) open->text.append(line).push_back('\n');
    } else if (open != nullptr) {
      open->complete = true;
      open = nullptr;
    } else {
      open = &blocks.emplace_back();
      open->language = LanguageName(
          absl::AsciiStrToLower(std::string(Stripped(stripped.substr(kFence.size())))));
    }
  }
  return blocks;
}

// The lines of an output, without white space at their ends and without empty lines at the end.
std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines = SplitLines(text);
  for (std::string_view& line : lines) {
    line = line.substr(0, line.find_last_not_of(" \t\r\v\f") + 1);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// Code that prints a line of its own at the end of a program; "": the language has none.
std::string PrintLast(std::string_view language, const std::string& line) {
  if (language == "python") return StrCat("print('\\n", line, "')\n");
  if (language == "nodejs") return StrCat("console.log('\\n", line, "');\n");
  if (language == "bash") return StrCat("printf '\\n%s\\n' ", line, "\n");
  return "";
}

absl::Status AddTests(const json& tests, const std::string& nonce, Submission& submission) {
  if (tests.is_object() && tests.contains("code") && tests["code"].is_string()) {
    submission.assertions = tests["code"].get<std::string>();
    const std::string print = PrintLast(submission.program.language(), nonce);
    if (print.empty()) {
      return InvalidArgument("config.provided_data.test: code cannot follow a program in ",
                             submission.program.language(), "; give inputs and outputs");
    }
    submission.last_line = nonce;
    submission.program.set_code(
        StrCat(submission.code.text, "\n\n", submission.assertions, "\n", print));
    submission.program.add_inputs();
    return absl::OkStatus();
  }
  if (!tests.is_array() || tests.empty() || tests.size() > kMaxTests) {
    return InvalidArgument("config.provided_data.test is neither {code} nor a list of 1 to ",
                           kMaxTests, " tests");
  }
  for (const json& test : tests) {
    const json input = test.is_object() ? test.value("input", json()) : json();
    const json output = test.is_object() ? test.value("output", json()) : json();
    if (!output.is_object() || !output.contains("stdout") || !output["stdout"].is_string()) {
      return InvalidArgument("config.provided_data.test: a test without output.stdout");
    }
    const bool has_input = input.is_object() && input.contains("stdin");
    if (has_input && !input["stdin"].is_string()) {
      return InvalidArgument("config.provided_data.test: input.stdin is not text");
    }
    submission.program.add_inputs(has_input ? input["stdin"].get<std::string>() : "");
    submission.outputs.push_back(output["stdout"].get<std::string>());
  }
  submission.program.set_code(submission.code.text);
  return absl::OkStatus();
}

}  // namespace

ExtractedCode ExtractCode(std::string_view completion, std::string_view language) {
  if (Stripped(completion).empty()) return {};
  const std::vector<Block> blocks = Blocks(completion);
  const Block* best = nullptr;
  for (const Block& block : blocks) {
    const bool fits = block.language == language || block.language.empty();
    if (fits && (best == nullptr || block.complete)) best = &block;
  }
  if (best == nullptr) return {std::string(completion), "heuristic"};
  return {best->text, best->complete ? "fenced" : "incomplete_fenced"};
}

absl::StatusOr<Submission> ParseSubmission(std::string_view body, const std::string& nonce) {
  FRESHET_ASSIGN_OR_RETURN(const json object, ParseJson(body, "request"));
  if (!object.is_object()) return InvalidArgument("the request is not an object");
  const json config = object.value("config", json());
  const json data = config.is_object() ? config.value("provided_data", json()) : json();
  if (!data.is_object() || !data.contains("test")) {
    return InvalidArgument("config.provided_data.test is missing; there are no other datasets");
  }
  if (!object.contains("completion") || !object["completion"].is_string()) {
    return InvalidArgument("completion is missing");
  }
  Submission submission;
  submission.id = object.value("id", json());
  const json language = config.value("language", json());
  submission.program.set_language(
      LanguageName(language.is_string() ? language.get<std::string>() : "python"));
  submission.code =
      ExtractCode(object["completion"].get<std::string>(), submission.program.language());
  FRESHET_RETURN_IF_ERROR(AddTests(data["test"], nonce, submission));
  FRESHET_RETURN_IF_ERROR(SetTimeouts(config, submission.program));
  return submission;
}

bool SameOutput(std::string_view output, std::string_view expected) {
  return Lines(output) == Lines(expected);
}

bool Passed(const Submission& submission, const v1::Outcome& outcome, int number) {
  if (number >= outcome.runs_size() || !Succeeded(outcome.runs(number))) return false;
  const std::string& output = outcome.runs(number).standard_output();
  if (!submission.outputs.empty()) {
    return SameOutput(output, submission.outputs[static_cast<size_t>(number)]);
  }
  return submission.last_line.empty() || output.ends_with(StrCat("\n", submission.last_line, "\n"));
}

json SubmissionJson(const Submission& submission, const v1::Outcome& outcome) {
  json tests = json::array();
  bool accepted = true;
  for (int number = 0; number < submission.program.inputs_size(); ++number) {
    const bool passed = Passed(submission, outcome, number);
    accepted = accepted && passed;
    json test = {{"passed", passed}, {"exec_info", RunJson(outcome, number)}};
    for (const char* command : {"compile_result", "run_result"}) {
      json& result = test["exec_info"][command];
      if (!result.is_object()) continue;
      for (const char* stream : {"stdout", "stderr"}) {
        result[stream] = ValidUtf8(result[stream].get<std::string>(), kMaxShownBytes);
      }
    }
    test["test_info"] = nullptr;
    if (!submission.outputs.empty()) {
      test["test_info"] = {
          {"input", {{"stdin", submission.program.inputs(number)}}},
          {"output", {{"stdout", submission.outputs[static_cast<size_t>(number)]}}}};
    }
    tests.push_back(std::move(test));
  }
  return {{"id", submission.id},
          {"accepted", accepted},
          {"extracted_code", submission.code.text},
          {"full_code", submission.program.code()},
          {"test_code", submission.assertions.empty() ? json() : json(submission.assertions)},
          {"tests", std::move(tests)},
          {"extracted_type", submission.code.type},
          {"extra", nullptr}};
}

}  // namespace freshet::sandbox
