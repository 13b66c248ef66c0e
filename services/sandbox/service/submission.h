#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_SUBMISSION_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_SUBMISSION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/sandbox/v1/sandbox.pb.h"
#include "nlohmann/json.hpp"

// Tests of model-written programs, and POST /submit as SandboxFusion 0.3 has it. Pure.

namespace freshet::sandbox {

// The code in a model's answer.
struct ExtractedCode {
  std::string text;
  // "fenced": the last complete block of the language, or without one; "incomplete_fenced": a block
  // that does not end; "heuristic": the whole answer; "empty".
  const char* type = "empty";
};
ExtractedCode ExtractCode(std::string_view completion, std::string_view language);

// A submission: the program, with the input of every test, and what its tests expect. The expected
// outputs stay outside the sandbox.
struct Submission {
  nlohmann::json id;
  ExtractedCode code;
  v1::Program program;
  // By input. With assertions, which are code after the program's, there is one input and no
  // output.
  std::vector<std::string> outputs;
  std::string assertions;
  // What a program with assertions prints last, so that one that ends before them does not pass. A
  // program that looks for it in its own text finds it.
  std::string last_line;
};
constexpr int kMaxTests = 200;

// `nonce`: unguessable. INVALID_ARGUMENT naming the field. `config.provided_data` has `test`: a
// list of {input: {stdin}, output: {stdout}}, or {code: assertions}.
absl::StatusOr<Submission> ParseSubmission(std::string_view body, const std::string& nonce);

// Whether an output is what a test expects: equal but for white space at the ends of lines, and
// empty lines at the end.
bool SameOutput(std::string_view output, std::string_view expected);

// Whether the run of test `number` passed.
bool Passed(const Submission& submission, const v1::Outcome& outcome, int number);

// The answer: EvalResult, with the beginning of each output.
nlohmann::json SubmissionJson(const Submission& submission, const v1::Outcome& outcome);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_SUBMISSION_H_
