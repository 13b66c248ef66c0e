#ifndef FRESHET_SERVICES_REWARD_SCORERS_CODE_TESTS_H_
#define FRESHET_SERVICES_REWARD_SCORERS_CODE_TESTS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/reward/scorers/http_question.h"

// What a reward of type code asks a sandbox (SandboxFusion's POST /submit), and what it makes of
// the answer. Pure.

namespace freshet {

struct CodeReward {
  std::string language;      // "python", "cpp", "javascript" or "bash"
  std::string tests;         // template
  bool fraction = false;     // the share of passed tests; otherwise 1 if all pass
  absl::Duration test_time;  // of one test
};

// The body of the call. `tests`: JSON, either {"inputs": [...], "outputs": [...]} or a list of
// {"input": ..., "output": ...}, all texts; or code with assertions, as {"code": ...} or as it is.
// FAILED_PRECONDITION: JSON that is neither.
absl::StatusOr<std::string> SubmissionBody(const CodeReward& reward, std::string_view tests,
                                           std::string_view completion);

// The reward, with the parts `passed` and `tests`. INTERNAL: it is not an EvalResult, or the
// sandbox failed in a test.
absl::StatusOr<ComponentScore> VerdictOf(const CodeReward& reward, std::string_view answer);

// The question with SubmissionBody and VerdictOf. INVALID_ARGUMENT: the template of the tests
// cannot be parsed.
absl::StatusOr<HttpQuestion> CodeQuestion(CodeReward reward);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_CODE_TESTS_H_
